// Package check compares what a node's kernel and wire show with what the controller published about the public
// network: a pure function from values to findings, each with cause, evidence and fix.
package check
