// Package returnpath shows on a network with anti-spoofing, beside a real kube-proxy, that clients are answered when
// the agent manages the path of replies, and that they are not without it.
package returnpath
