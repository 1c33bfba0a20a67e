// Package failover measures for how long a client beyond the gateway is without an answer when the node that announces
// an address fails, with the agents' announcer and with kube-vip.
package failover
