// Package agent holds the tests of the agent's parts together on a real kernel with 802.1Q.
package agent
