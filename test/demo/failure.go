//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
)

// steady is how many answers in a row end an outage: a single one may be luck while things still move.
const steady = 5

func (s *story) breakVLAN(ctx context.Context) error {
	server, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	s.broken = server
	s.brokenAt = time.Now()
	if err := s.Lab.Break(ctx, server, lab.LinkDown); err != nil {
		return err
	}
	s.say("%s: the VLAN interface is set down", server)
	seen, err := until(ctx, 30*time.Second, "condition of "+server, func(ctx context.Context) (bool, string, error) {
		return s.node(ctx, server, func(n *corev1.Node) (bool, string) {
			_, text := vlanReady(n)
			condition := contract.FindNodeCondition(n, contract.ConditionVLANReady)
			return condition != nil && condition.Status == corev1.ConditionFalse && condition.Reason != "", text
		})
	})
	if err != nil {
		return err
	}
	s.seconds("vlan_fault_seen_after", seen.Sub(s.brokenAt))
	if err := s.leaseStays(ctx, server); err != nil {
		return err
	}
	if err := s.showNodes(ctx); err != nil {
		return err
	}
	return s.diagnose(ctx, server)
}

// leaseStays checks that kube-vip does not notice the fault: its lease for the Service stays where it is.
func (s *story) leaseStays(ctx context.Context, server string) error {
	lease, err := s.Kube.CoordinationV1().Leases(cluster.Namespace).Get(ctx, "kubevip-"+cluster.Service,
		metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("lease of kube-vip: %w", err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if s.KubeVIPRunsOn(server) && holder != server {
		return fmt.Errorf("kube-vip runs on %s, but its lease is held by %q", server, holder)
	}
	s.say("kube-vip notices nothing by itself: its lease is still held by %s", holder)
	return nil
}

// diagnose asks the agent on a broken server; exit code 1 reports that it found the fault.
func (s *story) diagnose(ctx context.Context, server string) error {
	out, err := s.Diagnose(ctx, server)
	if err != nil {
		return fmt.Errorf("run agent diagnose on %s: %w", server, err)
	}
	s.say("%s# phoenixnap-agent diagnose", server)
	s.quote(string(out.Stdout))
	if out.Code != 1 {
		s.quote(string(out.Stderr))
		return fmt.Errorf("agent diagnose on %s ended with exit code %d, want 1: a finding failed", server, out.Code)
	}
	return nil
}

func (s *story) moveByLabel(ctx context.Context) error {
	if _, err := until(ctx, time.Minute, "kube-vip ended on "+s.broken,
		func(ctx context.Context) (bool, string, error) {
			return s.node(ctx, s.broken, func(n *corev1.Node) (bool, string) {
				_, labelled := n.Labels[contract.NodeVLANReady]
				return !labelled && !s.KubeVIPRunsOn(n.Name),
					fmt.Sprintf("label %t, kube-vip runs %t", labelled, s.KubeVIPRunsOn(n.Name))
			})
		}); err != nil {
		return err
	}
	s.say("the label %s is gone from %s, and kube-vip with it", contract.NodeVLANReady, s.broken)
	if err := s.recovered(ctx, "failover_vlan_broken", s.brokenAt, after(s.brokenAt)); err != nil {
		return err
	}
	return s.movedFrom(ctx, s.broken)
}

func (s *story) mend(ctx context.Context) error {
	if err := s.Lab.Repair(ctx, s.broken); err != nil {
		return err
	}
	if _, err := until(ctx, time.Minute, s.broken+" ready again", func(ctx context.Context) (bool, string, error) {
		return s.node(ctx, s.broken, func(n *corev1.Node) (bool, string) {
			ok, seen := vlanReady(n)
			return ok && s.KubeVIPRunsOn(n.Name), seen
		})
	}); err != nil {
		return err
	}
	return s.showNodes(ctx)
}

func (s *story) killServer(ctx context.Context) error {
	server, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	died := time.Now()
	if err := s.Kill(ctx, server); err != nil {
		return err
	}
	s.say("%s is dead; kube-vip on the other server waits for the lease to run out", server)
	if err := s.recovered(ctx, "failover_node_dead", died, after(died)); err != nil {
		return err
	}
	return s.movedFrom(ctx, server)
}

// after has the outage found that began after a moment.
func after(since time.Time) func([]lab.Attempt) (lab.Attempt, bool) {
	return func(attempts []lab.Attempt) (lab.Attempt, bool) { return recovery(attempts, since) }
}

// recovered waits until the client is answered again, as end finds in what it attempted, and remembers how long that
// took.
func (s *story) recovered(ctx context.Context, name string, since time.Time,
	end func([]lab.Attempt) (lab.Attempt, bool)) error {
	var answer lab.Attempt
	if _, err := until(ctx, 90*time.Second, "the client answered again",
		func(ctx context.Context) (bool, string, error) {
			attempts, err := s.Lab.ProbeResults(ctx, s.probe)
			if err != nil {
				return false, "", err
			}
			var ok bool
			answer, ok = end(attempts)
			return ok, "no answers in a row since the fault", nil
		}); err != nil {
		return err
	}
	outage := answer.At.Add(answer.Took).Sub(since)
	s.seconds(name, outage)
	s.say("GET http://%s/ → %s (%.1f s after the fault)", s.address, strings.TrimSpace(answer.Body), outage.Seconds())
	return nil
}

// recovery finds the first of several answers in a row after the first request that failed since a moment.
func recovery(attempts []lab.Attempt, since time.Time) (lab.Attempt, bool) {
	failed := false
	row := 0
	for i, a := range attempts {
		switch {
		case a.At.Before(since):
		case !a.OK:
			failed = true
			row = 0
		case failed:
			if row++; row == steady {
				return attempts[i-steady+1], true
			}
		}
	}
	return lab.Attempt{}, false
}

// movedFrom checks on the wire that another server announces now, and that no two did at a time.
func (s *story) movedFrom(ctx context.Context, server string) error {
	now, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	if now == server {
		return errors.New("the gateway still has the hardware address of " + server)
	}
	s.say("on the wire: %s announces %s now", now, s.address)
	return nil
}
