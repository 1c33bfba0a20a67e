// Package fixes gives the files and commands that the agent prints to the real tools that configure a machine's
// network.
package fixes
