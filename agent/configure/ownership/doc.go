// Package ownership defines how a managing agent marks what it makes and changes, so that it recognizes its own
// objects after a crash and undoes no more than that.
package ownership

// Owner starts the agent's part of the alias of a link (IFLA_IFALIAS).
const Owner = "phoenixnap-agent"

// Protocol marks routes (RTA_PROTOCOL) and rules (FRA_PROTOCOL) of the agent. Neither the kernel
// (include/uapi/linux/rtnetlink.h) nor FRR, Cilium, Calico or kube-vip use this number.
const Protocol = 173
