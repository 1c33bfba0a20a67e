//go:build linux

package faults

import (
	"fmt"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// set sets a kernel setting of the VLAN interface.
func set(key string, value int) action { return here(fmt.Sprintf("echo %d > $CONF/%s", value, key)) }

func kernelFaults() []Fault {
	return []Fault{
		{Name: "strict reverse path filter, default route elsewhere", ID: "PN401", Reason: "StrictReversePath",
			Told: ByCondition, Event: true,
			make: here("echo 1 > $CONF/rp_filter\nip route replace default via $ELSEWHERE dev bond0.4"),
			mend: here("echo 2 > $CONF/rp_filter\nip route replace default via $GATEWAY dev bond0.56")},
		{Name: "ARP ignored", ID: "PN402", Reason: "ARPIgnored", Told: ByCondition, Short: true,
			make: set("arp_ignore", 8), mend: set("arp_ignore", 1)},
		{Name: "ARP answered to neighbours alone", ID: "PN402", Reason: "ARPRestricted", Told: ByMetric,
			Status: check.Warn,
			make:   set("arp_ignore", 2), mend: set("arp_ignore", 1)},
		{Name: "ARP filtered, default route elsewhere", ID: "PN402", Reason: "ARPFiltered", Told: ByMetric,
			Status: check.Warn, Event: true,
			make: here("echo 1 > $CONF/arp_filter\nip route replace default via $ELSEWHERE dev bond0.4"),
			mend: here("echo 0 > $CONF/arp_filter\nip route replace default via $GATEWAY dev bond0.56")},
		{Name: "IPVS without strict ARP", ID: "PN404", Reason: "StrictARPMissing", Told: ByCondition, Event: true,
			make: here("echo 0 > $CONF/arp_ignore\nip link add kube-ipvs0 type dummy"),
			mend: here("echo 1 > $CONF/arp_ignore\nip link delete kube-ipvs0")},
		{Name: "forwarding off", ID: "PN405", Reason: "ForwardingOff", Told: ByCondition, Event: true, Short: true,
			make: here("echo 0 > /proc/sys/net/ipv4/ip_forward"), mend: here("echo 1 > /proc/sys/net/ipv4/ip_forward")},
		{Name: "forwarding off on the VLAN interface", ID: "PN405", Reason: "ForwardingOffHere", Told: ByCondition,
			Event: true,
			make:  set("forwarding", 0), mend: set("forwarding", 1)},
		{Name: "proxy ARP", ID: "PN406", Reason: "ProxyARP", Told: ByMetric, Status: check.Warn, Event: true,
			make: set("proxy_arp", 1), mend: set("proxy_arp", 0)},
	}
}
