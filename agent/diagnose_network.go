//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// networkFlags describe the public network by hand, for a node whose API server cannot be reached.
type networkFlags struct {
	vlan      int
	networks  []string
	gateways  []string
	addresses []string
}

func (f *networkFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.vlan, "vlan", 0, "VLAN ID of the public network, in place of what the controller published")
	flags.StringSliceVar(&f.networks, "network", nil,
		"block of the network in CIDR notation, with --vlan; may be repeated")
	flags.StringSliceVar(&f.gateways, "gateway", nil,
		"gateway of one of the blocks, with --network; may be repeated. The first usable address of a block when not "+
			"given")
	flags.StringSliceVar(&f.addresses, "address", nil,
		"the node's own address in the network, with --vlan; may be repeated")
}

// expected returns the network that the flags describe; given is false when they describe none.
func (f *networkFlags) expected() (e check.Expected, given bool, err error) {
	if f.vlan == 0 {
		if len(f.networks)+len(f.gateways)+len(f.addresses) > 0 {
			return e, false, errors.New("--network, --gateway and --address need --vlan")
		}
		return e, false, nil
	}
	if e, err = check.ExpectedByHand(f.vlan, f.networks, f.addresses); err != nil {
		return e, false, err
	}
	for _, raw := range f.gateways {
		if err := setGateway(&e, raw); err != nil {
			return e, false, err
		}
	}
	return e, true, nil
}

// setGateway makes an address the gateway of the block that it lies in.
func setGateway(e *check.Expected, raw string) error {
	gateway, err := netip.ParseAddr(raw)
	if err != nil {
		return fmt.Errorf("--gateway %q is no IP address: %w", raw, err)
	}
	for i, b := range e.Network.Blocks {
		if b.CIDR.Contains(gateway) {
			if slices.Contains(e.Network.IPs, gateway) {
				return fmt.Errorf("--gateway %s is the node's own --address, too", gateway)
			}
			e.Network.Blocks[i].Gateway = gateway
			return nil
		}
	}
	return fmt.Errorf("--gateway %s lies in none of the blocks given with --network", gateway)
}
