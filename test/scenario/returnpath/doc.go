// Package returnpath shows on a network with anti-spoofing, beside a real kube-proxy, that clients are answered when the agent
// manages the way of replies, and that they are not when nobody does.
package returnpath
