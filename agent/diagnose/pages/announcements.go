package pages

import (
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
)

// Announcements adds the findings for addresses of Services that are not announced as they should be.
func Announcements(examples map[check.ID][]check.Finding) {
	for _, o := range observations() {
		f := vip.Evaluate(o)
		examples[f.ID] = append(examples[f.ID], f)
	}
}

// observations are one for each way in which the announcement of an address goes wrong, as srv-a sees it.
func observations() []vip.Observation {
	const (
		macB    = "02:00:00:00:00:0b"
		foreign = "02:00:00:00:00:66"
	)
	seen := func(edit func(*vip.Observation)) vip.Observation {
		o := vip.Observation{
			Target:    vip.Target{Address: netip.AddrFrom4([4]byte{203, 0, 113, 3}), Service: "default/web"},
			Interface: "bond0.100", Node: "srv-a", Names: map[string]string{macB: "srv-b"},
		}
		edit(&o)
		return o
	}
	lease := func(standing kubevip.State, holder string) kubevip.Lease {
		return kubevip.Lease{Name: "default/kubevip-web", State: standing, Holder: holder}
	}
	here := []string{"bond0.100"}
	return []vip.Observation{
		seen(func(*vip.Observation) {}),
		seen(func(o *vip.Observation) { o.Error = "operation not permitted" }),
		seen(func(o *vip.Observation) { o.Lease = lease(kubevip.Held, "srv-b") }),
		seen(func(o *vip.Observation) {
			o.Held = here
			o.Lease = lease(kubevip.Held, "srv-b")
		}),
		seen(func(o *vip.Observation) {
			o.Held = here
			o.MACs = []string{macB}
			o.Replied = true
		}),
		seen(func(o *vip.Observation) { o.Held = []string{"bond0"} }),
		seen(func(o *vip.Observation) {
			o.Held = here
			o.ReturnBy = "bond0.11"
		}),
		seen(func(o *vip.Observation) {
			o.MACs = []string{macB}
			o.Replied = true
			o.Lease = lease(kubevip.Held, "srv-c")
		}),
		seen(func(o *vip.Observation) {
			o.MACs = []string{foreign}
			o.Replied = true
			o.Foreign = []string{foreign}
		}),
		seen(func(o *vip.Observation) {
			o.MACs = []string{macB}
			o.Replied = true
			o.Lease = lease(kubevip.Expired, "srv-b")
		}),
		seen(func(o *vip.Observation) {
			o.MACs = []string{macB}
			o.Replied = true
			o.Lease = lease(kubevip.Missing, "")
		}),
	}
}
