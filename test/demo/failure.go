//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
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
	seen, err := s.awaitNodes(ctx, 30*time.Second, "condition of "+server, func(n *corev1.Node) (bool, string) {
		_, text := vlanReady(n)
		condition := contract.FindNodeCondition(n, contract.ConditionVLANReady)
		return condition != nil && condition.Status == corev1.ConditionFalse && condition.Reason != "", text
	}, server)
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
	if err := s.diagnose(ctx, server); err != nil {
		return err
	}
	return s.recordDiagnosis(ctx, server)
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
	if _, err := s.awaitNodes(ctx, patience, "kube-vip ended on "+s.broken, func(n *corev1.Node) (bool, string) {
		_, labelled := n.Labels[contract.NodeVLANReady]
		return !labelled && !s.KubeVIPRunsOn(n.Name),
			fmt.Sprintf("label %t, kube-vip runs %t", labelled, s.KubeVIPRunsOn(n.Name))
	}, s.broken); err != nil {
		return err
	}
	s.say("the label %s is gone from %s, and kube-vip with it", contract.NodeVLANReady, s.broken)
	if err := s.recovered(ctx, "failover_vlan_broken", s.brokenAt, after(s.brokenAt)); err != nil {
		return err
	}
	return s.movedFrom(ctx, s.broken)
}

func (s *story) repair(ctx context.Context) error {
	if err := s.Lab.Repair(ctx, s.broken); err != nil {
		return err
	}
	if _, err := s.awaitNodes(ctx, patience, s.broken+" ready again", s.mayAnnounce, s.broken); err != nil {
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
	answer, err := s.awaitAnswer(ctx, s.probe, 90*time.Second, "the client answered again", end)
	if err != nil {
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

// disturbVLAN sets the interface down, as a careless person would.
func (s *story) disturbVLAN(ctx context.Context) error {
	return s.disturb(ctx, "vlan_repaired_after", vlan.ReasonRepaired, "ip", "link", "set", cluster.PublicInterface,
		"down")
}

// disturbReturnPath deletes the agent's nftables table.
func (s *story) disturbReturnPath(ctx context.Context) error {
	return s.disturb(ctx, "return_path_repaired_after", returnpath.ReasonRepaired, "nft", "delete", "table", "ip",
		"phoenixnap")
}

// disturb runs a command on the announcing server that interrupts the client, and waits until the agent has reported
// the repair and the client is answered again, through the same server. The agent may be so quick that no request
// fails.
func (s *story) disturb(ctx context.Context, figure, reason string, command ...string) error {
	server, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	before, err := s.eventsOn(ctx, server, reason)
	if err != nil {
		return err
	}
	begun := time.Now()
	out, err := s.Lab.Exec(ctx, server, command...)
	if err != nil || out.Code != 0 {
		return fmt.Errorf("%s on %s: exit code %d, %s, %w", strings.Join(command, " "), server, out.Code, out.Stderr,
			err)
	}
	s.say("%s# %s", server, strings.Join(command, " "))
	event, reported, err := s.reportedOnNode(ctx, server, reason, before)
	if err != nil {
		return err
	}
	if err := s.recovered(ctx, figure, begun, func(attempts []lab.Attempt) (lab.Attempt, bool) {
		return repairedAnswer(attempts, begun, reported)
	}); err != nil {
		return err
	}
	s.say("event on Node %s: %s: %s", server, event.Reason, event.Message)
	now, err := s.announcer(ctx)
	if err == nil && now != server {
		return fmt.Errorf("the address moved to %s, though the agent of %s was to repair what was disturbed", now,
			server)
	}
	return errors.Join(err, s.atRest(ctx, server))
}

// rest is how long a server must be healthy until no more changes of its conditions are expected.
const rest = 3 * time.Second

// atRest waits until a server has been ready, with its kube-vip, for a while: the repair may still be reported.
func (s *story) atRest(ctx context.Context, server string) error {
	var since time.Time
	_, err := until(ctx, patience, server+" at rest", func(ctx context.Context) (bool, string, error) {
		ready, seen, err := s.nodes(ctx, s.mayAnnounce, server)
		switch {
		case err != nil || !ready:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return ready && time.Since(since) >= rest, seen, err
	})
	return err
}

// repairedAnswer finds the answer that ended a disturbance since a moment: the first of those in a row that go on for a
// while after it was reported that everything is repaired.
func repairedAnswer(attempts []lab.Attempt, since, reported time.Time) (lab.Attempt, bool) {
	var first *lab.Attempt
	after := 0
	for _, a := range attempts {
		switch {
		case a.At.Before(since):
		case !a.OK:
			first = nil
			after = 0
		default:
			if first == nil {
				first = &a
			}
			if a.At.After(reported) {
				after++
			}
			if after == steady {
				return *first, true
			}
		}
	}
	return lab.Attempt{}, false
}

// eventsOn lists the events of a reason on a Node.
func (s *story) eventsOn(ctx context.Context, server, reason string) ([]corev1.Event, error) {
	events, err := s.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + server + ",reason=" + reason,
	})
	if err != nil {
		return nil, fmt.Errorf("events %s on Node %s: %w", reason, server, err)
	}
	return events.Items, nil
}

// reportedOnNode waits for an event of a reason on a Node that was not there before, or not so often; it returns when
// it was seen.
func (s *story) reportedOnNode(ctx context.Context, server, reason string, before []corev1.Event) (found corev1.Event,
	seen time.Time, err error) {
	known := map[string]int32{}
	for _, e := range before {
		known[e.Name] = e.Count
	}
	seen, err = until(ctx, 30*time.Second, "event "+reason+" on "+server,
		func(ctx context.Context) (bool, string, error) {
			events, err := s.eventsOn(ctx, server, reason)
			for _, e := range events {
				if e.Count > known[e.Name] {
					found = e
					return true, "", nil
				}
			}
			return false, "no such event since", err
		})
	return found, seen, err
}

// configured shows what the agents made on the servers.
func (s *story) configured(ctx context.Context) error {
	for _, server := range s.Servers {
		address, err := s.Lab.Exec(ctx, server.Name, "ip", "address", "show", "dev", cluster.PublicInterface)
		if err != nil || address.Code != 0 {
			return fmt.Errorf("what the agent made on %s: exit code %d, %s, %w", server.Name, address.Code,
				address.Stderr, err)
		}
		s.say("%s# ip address show dev %s", server.Name, cluster.PublicInterface)
		s.quote(string(address.Stdout))
	}
	return nil
}

const (
	// evidenceLimit is how long gathering evidence may take.
	evidenceLimit = 30 * time.Second
	// tail is how much of a log is shown.
	tail = 3000
)

// evidence shows what there is to see when a step has failed. It continues when a part is missing: the cluster may
// be in any state.
func (s *story) evidence(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, evidenceLimit)
	defer cancel()
	fmt.Fprintf(s.out, "\nEvidence\n")
	if s.Kube != nil {
		for _, args := range [][]string{
			{"describe", "nodes"},
			{"get", "services", "-o", "yaml"},
			{"get", "pubnet,ipb", "-o", "wide"},
			{"get", "events", "-A", "--sort-by=.lastTimestamp"},
			{"get", "leases", "-A"},
		} {
			s.say("kubectl %v", args)
			if err := s.kubectl(ctx, args...); err != nil {
				s.say("%v", err)
			}
		}
	}
	if s.Lab != nil {
		s.labLogs(ctx)
	}
	logs, err := filepath.Glob(filepath.Join(s.options.Dir, "*.log"))
	if err != nil {
		s.say("%v", err)
	}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			s.say("%v", err)
			continue
		}
		s.showLog(path, raw)
	}
}

func (s *story) labLogs(ctx context.Context) {
	processes, err := s.Lab.Processes(ctx, "")
	if err != nil {
		s.say("%v", err)
	}
	shown := map[string]bool{}
	for _, p := range processes {
		if shown[p.Name] {
			continue
		}
		shown[p.Name] = true
		raw, err := s.Lab.Log(ctx, p.Name)
		if err != nil {
			s.say("%v", err)
			continue
		}
		s.showLog(fmt.Sprintf("%s on %s", p.Name, p.Host), raw)
	}
}

// showLog shows the end of a log.
func (s *story) showLog(name string, raw []byte) {
	if len(raw) > tail {
		raw = raw[len(raw)-tail:]
	}
	s.say("end of the log of %s:", name)
	s.quote(string(raw))
}
