// Package check judges what a node's kernel and wire show against what the controller published about
// the public network: a pure function from values to findings, each with cause, evidence and fix.
package check
