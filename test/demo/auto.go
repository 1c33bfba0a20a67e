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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
)

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
	event, told, err := s.toldOnNode(ctx, server, reason, before)
	if err != nil {
		return err
	}
	if err := s.recovered(ctx, figure, begun, func(attempts []lab.Attempt) (lab.Attempt,
		bool) {
		return mending(attempts, begun, told)
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
	_, err := until(ctx, time.Minute, server+" at rest", func(ctx context.Context) (bool, string, error) {
		ready, seen, err := s.node(ctx, server, func(n *corev1.Node) (bool, string) {
			ok, seen := vlanReady(n)
			return ok && s.KubeVIPRunsOn(n.Name), seen
		})
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

// mending finds the answer that ended a disturbance since a moment: the first of those in a row that go on for a while
// after it was reported that everything is repaired.
func mending(attempts []lab.Attempt, since, told time.Time) (lab.Attempt, bool) {
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
			if a.At.After(told) {
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

// toldOnNode waits for an event of a reason on a Node that was not there before, or not so often; it returns when it
// was seen.
func (s *story) toldOnNode(ctx context.Context, server, reason string, before []corev1.Event) (found corev1.Event,
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
