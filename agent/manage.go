//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// The bounds of --table-base: the kernel's own tables end at 255 (ip-route(8)), and the number of a table has 32 bits.
const (
	minTableBase = 256
	maxTableBase = 1 << 30
)

// manageFlags select what the agent configures itself instead of explaining how.
type manageFlags struct {
	things    []string
	mark      string
	tableBase int
}

func (f *manageFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.things, "manage", nil,
		"what the agent configures itself, separated by commas: vlan (the VLAN interface with its address and "+
			"settings), return-path (the way of replies, by connection marks); takes the capability NET_ADMIN")
	flags.StringVar(&f.mark, "mark", returnpath.DefaultBits.String(),
		"bits of packet and connection marks that --manage=return-path uses; no other program on the node may use them")
	flags.IntVar(&f.tableBase, "table-base", check.DefaultTableBase,
		"this and the VLAN ID make the number of the first routing table of --manage=return-path")
}

// parse adds what the flags mean to options.
func (f *manageFlags) parse(o *network.Options) error {
	o.ManageVLAN = slices.Contains(f.things, network.ManageVLAN)
	o.ManageReturnPath = slices.Contains(f.things, network.ManageReturnPath)
	o.TableBase = f.tableBase
	for _, thing := range f.things {
		if thing != network.ManageVLAN && thing != network.ManageReturnPath {
			return usageError{fmt.Errorf("--manage %q: give %s, %s or both", thing, network.ManageVLAN,
				network.ManageReturnPath)}
		}
	}
	var err error
	if o.Bits, err = returnpath.ParseBits(f.mark); err != nil {
		return usageError{fmt.Errorf("--mark: %w", err)}
	}
	if f.tableBase < minTableBase || f.tableBase > maxTableBase {
		return usageError{fmt.Errorf("--table-base %d: give a number from %d, beyond the kernel's own tables, to %d",
			f.tableBase, minTableBase, maxTableBase)}
	}
	if o.ManageVLAN || o.ManageReturnPath {
		return mayConfigure("--manage=" + strings.Join(f.things, ","))
	}
	return nil
}

// mayConfigure says what to do when the process may not change the network.
func mayConfigure(what string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return fmt.Errorf("%s changes the node's network and takes the capability NET_ADMIN, which this process "+
			"lacks: add it to the container's securityContext", what)
	}
	return nil
}

func newCleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Removes what a managing agent has configured on this node",
		Long: "Removes what a managing agent (--manage) has configured on this node, and nothing else: what it " +
			"made goes, what it adopted\nbecomes as it was. No agent may be managing meanwhile. Called again it " +
			"finds nothing to do.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return cleanUp(c.Context(), c.OutOrStdout()) },
	}
}

// cleanUp removes the return path first: its routes lead through the VLAN interface.
func cleanUp(ctx context.Context, out io.Writer) error {
	if err := mayConfigure("cleanup"); err != nil {
		return err
	}
	journal := &ownership.Journal{}
	path := returnpath.New(returnpath.Config{Expected: func() []check.Expected { return nil },
		Journal: journal})
	pathErr := path.Cleanup(ctx)
	done, err := vlan.Cleanup(ctx, vlan.System{Journal: journal})
	for _, text := range done {
		fmt.Fprintln(out, text)
	}
	if err = errors.Join(pathErr, err); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	_, err = fmt.Fprintln(out, "Removed all configuration of the agent from this node")
	return err
}
