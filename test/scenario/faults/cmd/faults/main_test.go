//go:build linux

package main

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/faults"
)

func TestChoose(t *testing.T) {
	all := []faults.Fault{{Name: "gateway gone"}, {Name: "gateway slow"}, {Name: "proxy ARP"}}
	for parts, want := range map[string]int{"": 3, "gateway": 2, "gateway slow,ARP": 2, "router": 0} {
		if got := choose(all, parts); len(got) != want {
			t.Errorf("%q chooses %d faults, want %d", parts, len(got), want)
		}
	}
}
