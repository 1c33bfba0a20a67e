// Package netstate reads the state of a node's network from the kernel, over netlink and /proc/sys, into the values
// that package check evaluates.
package netstate
