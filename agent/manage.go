//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// What --manage takes.
const (
	manageVLAN       = "vlan"
	manageReturnPath = "return-path"
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

// managing is what manageFlags mean.
type managing struct {
	vlan, returnPath bool
	bits             returnpath.Bits
	tableBase        int
}

func (f *manageFlags) parse() (managing, error) {
	m := managing{vlan: slices.Contains(f.things, manageVLAN), returnPath: slices.Contains(f.things, manageReturnPath),
		tableBase: f.tableBase}
	for _, thing := range f.things {
		if thing != manageVLAN && thing != manageReturnPath {
			return m, usageError{fmt.Errorf("--manage %q: give %s, %s or both", thing, manageVLAN, manageReturnPath)}
		}
	}
	var err error
	if m.bits, err = returnpath.ParseBits(f.mark); err != nil {
		return m, usageError{fmt.Errorf("--mark: %w", err)}
	}
	if f.tableBase < minTableBase || f.tableBase > maxTableBase {
		return m, usageError{fmt.Errorf("--table-base %d: give a number from %d, beyond the kernel's own tables, to %d",
			f.tableBase, minTableBase, maxTableBase)}
	}
	if m.vlan || m.returnPath {
		return m, mayConfigure("--manage=" + strings.Join(f.things, ","))
	}
	return m, nil
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

// marks are the mark of the first gateway's replies and the mask, zero while the return path is not managed.
func (m managing) marks() (mark, mask uint32) {
	if !m.returnPath {
		return 0, 0
	}
	return m.bits.Value(0), uint32(m.bits)
}

// reconcilers returns one reconciler for each managed thing, and what is managed at the moment, for metrics.
func (m managing) reconcilers(s *shared) (reconcilers []part, states []func() metricsserver.Managed) {
	// One journal: both write the record of the VLAN interface.
	journal := &ownership.Journal{}
	expected := func() check.Expected {
		if _, seen := s.state.View(); !seen {
			// Whether the machine is the server that its Node names is not known before the first sample.
			return check.Expected{}
		}
		return s.state.Expected()
	}
	if m.vlan {
		var repairs atomic.Int64
		r := vlan.New(vlan.Config{
			Expected: expected, Kernel: vlan.System{Journal: journal}, Prober: s.prober, Watch: netstate.Watch,
			BlockedReason: s.state.BlockedReason,
			Record: func(e vlan.Event) {
				if e.Reason == vlan.ReasonRepaired {
					repairs.Add(1)
				}
				s.recordOnNode(e.Warning, e.Reason, e.Message)
			},
			Signals: s.wakes.vlan,
		})
		reconcilers = append(reconcilers, r)
		states = append(states, func() metricsserver.Managed {
			status := r.Status()
			return metricsserver.Managed{Kind: manageVLAN, Interface: status.Interface,
				Healthy: status.Interface != "" && status.Problem == "", Repairs: int(repairs.Load())}
		})
	}
	if m.returnPath {
		r := returnpath.New(returnpath.Config{
			Expected: expected, Bits: m.bits, Journal: journal, BlockedReason: s.state.BlockedReason,
			Watches: []func(context.Context, func()) error{netstate.Watch, returnpath.WatchTable},
			Record:  func(n returnpath.Notice) { s.recordOnNode(n.Warning, n.Reason, n.Message) },
			Signals: s.wakes.returnPath,
		})
		reconcilers = append(reconcilers, r)
		states = append(states, func() metricsserver.Managed {
			status := r.Status()
			return metricsserver.Managed{Kind: manageReturnPath, Interface: status.Interface,
				Healthy: status.Managing && status.Problem == "", Repairs: status.Repairs}
		})
	}
	return reconcilers, states
}

// recordOnNode records an event on the Node; it is dropped while the Node is not known.
func (s *shared) recordOnNode(warning bool, reason, message string) {
	node := conditions.Reference(s.publisher.Observed())
	if node == nil {
		return
	}
	eventType := corev1.EventTypeNormal
	if warning {
		eventType = corev1.EventTypeWarning
	}
	s.recorder.Event(node, eventType, reason, message)
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
	path := returnpath.New(returnpath.Config{Expected: func() check.Expected { return check.Expected{} },
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
