//go:build linux

package faults

import "github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"

func addressFaults() []Fault {
	return []Fault{
		{Name: "own address deleted", ID: "PN201", Reason: "AddressMissing", Told: ByCondition, Event: true,
			Short: true,
			make:  here("ip address delete $OWN dev bond0.56"), mend: restore},
		{Name: "own address without its network", ID: "PN201", Reason: "WrongPrefixLength", Told: ByCondition,
			Event: true,
			make:  here("ip address delete $OWN dev bond0.56\nip address add $ADDRESS/32 dev bond0.56"),
			mend:  then(here("ip address delete $ADDRESS/32 dev bond0.56"), restore)},
		{Name: "own address on the bond itself", ID: "PN201", Reason: "AddressOnWrongInterface", Told: ByCondition,
			Event: true,
			make:  here("ip address delete $OWN dev bond0.56\nip address add $OWN dev bond0"),
			mend:  then(here("ip address delete $OWN dev bond0"), restore)},
		{Name: "block on a second interface", ID: "PN203", Reason: "BlockOnOtherInterface", Told: ByMetric,
			Status: check.Warn, Event: true, Short: true,
			make: here("ip address add $ADDRESS/32 dev lo"), mend: here("ip address delete $ADDRESS/32 dev lo")},
		{Name: "block routed by another interface", ID: "PN203", Reason: "GatewayRoutedElsewhere", Told: ByCondition,
			Event: true,
			make:  here("ip route add $GATEWAY/32 dev bond0.4"), mend: here("ip route delete $GATEWAY/32 dev bond0.4")},
		{Name: "block of the gateway refused by a route", ID: "PN203", Reason: "GatewayUnroutable", Told: ByCondition,
			Event: true,
			make:  here("ip route add blackhole $GATEWAY/32"), mend: here("ip route delete blackhole $GATEWAY/32")},
		{Name: "own address used by another server", ID: "PN202", Reason: "AddressInUse", Told: ByCondition,
			Alone: true, Short: true,
			make: nextDoor("ip address add $ADDRESS/32 dev bond0.56"),
			mend: nextDoor("ip address delete $ADDRESS/32 dev bond0.56")},
	}
}
