// Package sampler takes samples of the node, at once when the kernel reports a change and otherwise at intervals, and
// reports the stable result.
package sampler
