//go:build linux

package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/cluster"
)

// disturbVLAN sets the interface down, as a careless person would.
func (s *story) disturbVLAN(ctx context.Context) error {
	return s.disturb(ctx, "vlan_repaired_after", vlan.ReasonRepaired, "ip", "link", "set", cluster.PublicInterface, "down")
}

// disturbReturnPath deletes the agent's nftables table.
func (s *story) disturbReturnPath(ctx context.Context) error {
	return s.disturb(ctx, "return_path_repaired_after", returnpath.ReasonRepaired, "nft", "delete", "table", "ip", "phoenixnap")
}

// disturb runs a command on the announcing server that keeps the client from being answered, and waits until it is
// again, through the same server.
func (s *story) disturb(ctx context.Context, figure, reason string, command ...string) error {
	server, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	out, err := s.Lab.Exec(ctx, server, command...)
	if err != nil || out.Code != 0 {
		return fmt.Errorf("%s on %s: exit code %d, %s, %w", strings.Join(command, " "), server, out.Code, out.Stderr, err)
	}
	s.say("%s# %s", server, strings.Join(command, " "))
	if err := s.recovered(ctx, figure, begun); err != nil {
		return err
	}
	now, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	if now != server {
		return fmt.Errorf("the address moved to %s, though the agent of %s was to repair what was disturbed", now, server)
	}
	return s.toldOnNode(ctx, server, reason)
}

// toldOnNode waits for an event on a Node and shows it.
func (s *story) toldOnNode(ctx context.Context, server, reason string) error {
	var found corev1.Event
	_, err := until(ctx, 30*time.Second, "event "+reason+" on "+server, func(ctx context.Context) (bool, string, error) {
		events, err := s.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + server + ",reason=" + reason,
		})
		if err != nil || len(events.Items) == 0 {
			return false, "no such event", err
		}
		found = events.Items[len(events.Items)-1]
		return true, "", nil
	})
	if err == nil {
		s.say("event on Node %s: %s: %s", server, found.Reason, found.Message)
	}
	return err
}

// configured shows what the agents made on the servers.
func (s *story) configured(ctx context.Context) error {
	for _, server := range s.Servers {
		address, err := s.Lab.Exec(ctx, server.Name, "ip", "address", "show", "dev", cluster.PublicInterface)
		if err != nil || address.Code != 0 {
			return fmt.Errorf("what the agent made on %s: exit code %d, %s, %w", server.Name, address.Code, address.Stderr, err)
		}
		s.say("%s# ip address show dev %s", server.Name, cluster.PublicInterface)
		s.quote(string(address.Stdout))
	}
	return nil
}
