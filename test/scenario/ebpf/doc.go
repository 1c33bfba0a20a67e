// Package ebpf shows what becomes of replies when eBPF programs translate the address of a Service, as Cilium's
// kube-proxy replacement does, beside an agent that manages the return path. The programs are stand-ins: each does one
// step of what Cilium does, at the same place.
package ebpf
