//go:build linux

package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
)

func newDiagnoseVIPCommand(f *diagnoseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "vip <address>",
		Short: "Shows who answers for the address of a Service, who should, and what this node has to do with it",
		Long: "Shows who answers for the address of a Service, who should, and what this node has to do with it. " +
			"Nothing is changed.\n\n" +
			"The flags and exit codes are those of diagnose.",
		Example: "  phoenixnap-agent diagnose vip 203.0.113.3\n" +
			"  phoenixnap-agent diagnose vip 203.0.113.3 --vlan 56 --network 203.0.113.0/29 --address 203.0.113.2",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one address, not %d", len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			address, err := netip.ParseAddr(args[0])
			if err != nil || !address.Is4() {
				return usageError{fmt.Errorf("%q is no IPv4 address: give that of a Service, such as 203.0.113.3",
					args[0])}
			}
			return runDiagnose(c, *f, address)
		},
	}
}
