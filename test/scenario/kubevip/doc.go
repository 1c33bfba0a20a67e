// Package kubevip makes every state of kube-vip that the agent has a word for, with real kube-vip of several versions
// on servers of the lab, and expects the agent to name it.
package kubevip
