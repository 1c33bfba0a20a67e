// Package netstate reads what the kernel knows of a node's network, over netlink and /proc/sys, into the
// values that package check judges.
package netstate
