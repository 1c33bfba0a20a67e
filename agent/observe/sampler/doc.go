// Package sampler takes samples of the node, at once when the kernel reports a change and else at intervals, and tells
// what holds true of them.
package sampler
