//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// How the client asks: often enough to see an outage to a quarter of a second, with a new connection each time. In an
// emulated machine ten requests a second cost more than all else that runs there.
const (
	probeInterval = 250 * time.Millisecond
	probeTimeout  = 500 * time.Millisecond
)

func (s *story) vlanReady(ctx context.Context) error {
	if err := s.SuperviseKubeVIP(ctx); err != nil {
		return err
	}
	if err := s.StartAgents(ctx); err != nil {
		return err
	}
	if _, err := s.awaitNodes(ctx, patience, "nodes ready for the public network", s.mayAnnounce); err != nil {
		return err
	}
	if s.options.Auto {
		if err := s.configured(ctx); err != nil {
			return err
		}
	}
	return s.showNodes(ctx)
}

func (s *story) publish(ctx context.Context) error {
	s.created = time.Now()
	if err := s.CreateService(ctx); err != nil {
		return err
	}
	if s.options.Class != "" {
		s.say("its class is %s", s.options.Class)
	}
	if err := s.recordService(ctx, "get"); err != nil {
		return err
	}
	address, published, err := s.awaitAddress(ctx, cluster.Service)
	if err != nil {
		return err
	}
	s.address = address
	s.seconds("address_published_after", published.Sub(s.created))
	if err := s.checkBlock(ctx); err != nil {
		return err
	}
	if s.probe, err = s.ask(ctx, s.address, probeTimeout); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "get", "service", cluster.Service); err != nil {
		return err
	}
	if err := s.showBlock(ctx); err != nil {
		return err
	}
	return s.showNetwork(ctx)
}

// awaitAddress waits for the address of a Service, and returns when it was published.
func (s *story) awaitAddress(ctx context.Context, name string) (address netip.Addr, published time.Time, err error) {
	published, err = until(ctx, 2*time.Minute, "address of "+name, func(ctx context.Context) (bool, string, error) {
		service, err := s.service(ctx, name)
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return false, "no address in the status of the Service", err
		}
		address, err = netip.ParseAddr(service.Status.LoadBalancer.Ingress[0].IP)
		return err == nil, "", err
	})
	return address, published, err
}

// ask begins to send requests to an address from the client.
func (s *story) ask(ctx context.Context, address netip.Addr, timeout time.Duration) (probe int, err error) {
	if probe, err = s.Lab.StartProbe(ctx, lab.Probe{URL: "http://" + address.String() + "/", Interval: probeInterval,
		Timeout: timeout}); err != nil {
		return 0, fmt.Errorf("begin to ask from the client: %w", err)
	}
	return probe, nil
}

// showNetwork shows the object of the public network as soon as it counts the block.
func (s *story) showNetwork(ctx context.Context) error {
	for _, args := range [][]string{
		{"wait", "pubnet", v1beta1.DefaultNetwork, "--for=jsonpath={.status.ipv4Blocks}=2", "--timeout=1m"},
		{"get", "pubnet"},
	} {
		if err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// showBlock shows the object of the block as soon as it says what the Service does.
func (s *story) showBlock(ctx context.Context) error {
	service, err := s.service(ctx, cluster.Service)
	if err != nil {
		return err
	}
	name := v1beta1.ServicePrefix + string(service.UID)
	if err := s.kubectl(ctx, "wait", "ipb", name, "--for=condition=Ready", "--timeout=1m"); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "ipb", name)
}

// checkBlock holds the bought block against what was promised: tags, size, and the third address.
func (s *story) checkBlock(ctx context.Context) error {
	state, err := s.Sim.State(ctx)
	if err != nil {
		return err
	}
	system, err := s.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("identity of the cluster: %w", err)
	}
	want := []cluster.AccountTag{
		{Name: contract.TagUsage, Value: contract.TagUsageAuto},
		{Name: contract.TagCluster, Value: string(system.UID)},
		{Name: contract.TagService, Value: contract.ServiceTag(cluster.Namespace, cluster.Service)},
	}
	for _, b := range state.Blocks {
		if b.ID == cluster.NodeBlockID {
			continue
		}
		for _, tag := range want {
			if !slices.Contains(b.Tags, tag) {
				return fmt.Errorf("block %s lacks the tag %s=%s, it has %v", b.ID, tag.Name, tag.Value, b.Tags)
			}
			s.say("block %s (%s): tag %s=%s", b.CIDR, b.Status, tag.Name, tag.Value)
		}
		cidr, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			return fmt.Errorf("block %s: %w", b.ID, err)
		}
		if third := cidr.Addr().Next().Next(); third != s.address || cidr.Bits() != 29 || b.Status != "assigned" {
			return fmt.Errorf("published %s, but the block is %s, %s; want the third address of an assigned /29",
				s.address, b.CIDR, b.Status)
		}
		return s.Sim.ClaimPublished(ctx, b.ID, s.address.String())
	}
	return errors.New("the account holds no block for the Service")
}

func (s *story) firstAnswer(ctx context.Context) error {
	answer, err := s.awaitAnswer(ctx, s.probe, 2*time.Minute, "an HTTP answer", s.answerToClient)
	if err != nil {
		return err
	}
	s.seconds("first_http_answer_after", answer.At.Add(answer.Took).Sub(s.created))
	if err := s.showAnswer(ctx, lab.Gateway, s.address, answer); err != nil {
		return err
	}
	announcer, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	s.say("kube-vip %s announces from %s; kube-proxy there passes requests to either backend", s.options.KubeVIP,
		announcer)
	return s.recordService(ctx, "describe")
}

// answerToClient finds the first answer since the Services were created.
func (s *story) answerToClient(all []lab.Attempt) (lab.Attempt, bool) {
	i := slices.IndexFunc(all, func(a lab.Attempt) bool { return a.OK && !a.At.Before(s.created) })
	if i < 0 {
		return lab.Attempt{}, false
	}
	return all[i], true
}

// showAnswer shows the answer of an address, and how the gateway found the way.
func (s *story) showAnswer(ctx context.Context, gateway string, address netip.Addr, answer lab.Attempt) error {
	s.say("GET http://%s/ → %s", address, strings.TrimSpace(answer.Body))
	neighbours, err := s.Lab.Neighbours(ctx, gateway)
	if err != nil {
		return fmt.Errorf("ARP table of the gateway: %w", err)
	}
	for _, n := range neighbours {
		if n.IP == address {
			s.say("%s resolved %s by ARP: %s on %s", gateway, n.IP, n.MAC, n.Interface)
		}
	}
	return nil
}

// awaitAnswer waits until one of the requests of a probe is the answer that is looked for.
func (s *story) awaitAnswer(ctx context.Context, probe int, limit time.Duration, what string,
	find func([]lab.Attempt) (lab.Attempt, bool)) (answer lab.Attempt, err error) {
	_, err = until(ctx, limit, what, func(ctx context.Context) (bool, string, error) {
		attempts, err := s.Lab.ProbeResults(ctx, probe)
		if err != nil || len(attempts) == 0 {
			return false, "no request yet", err
		}
		var ok bool
		answer, ok = find(attempts)
		return ok, fmt.Sprintf("last request: %+v", attempts[len(attempts)-1]), nil
	})
	return answer, err
}

func (s *story) deleteService(ctx context.Context) error {
	if _, err := s.Lab.StopProbe(ctx, s.probe); err != nil {
		return fmt.Errorf("end the client's requests: %w", err)
	}
	if err := s.Sim.ClaimWithdrawn(ctx); err != nil {
		return err
	}
	begun := time.Now()
	gone, err := s.releaseService(ctx, cluster.Service)
	if err != nil {
		return err
	}
	s.seconds("service_released_after", gone.Sub(begun))
	if err := s.onlyNodeBlocks(ctx, cluster.NodeBlockID); err != nil {
		return err
	}
	s.say("the block of the Service is gone; left is the user's own block for the nodes, which the controller never " +
		"touched")
	return s.handBack(ctx, cluster.NodeBlockID)
}

// releaseService deletes a Service, and returns when it was gone: its block is released by then.
func (s *story) releaseService(ctx context.Context, name string) (time.Time, error) {
	services := s.Kube.CoreV1().Services(cluster.Namespace)
	if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return time.Time{}, fmt.Errorf("delete Service %s: %w", name, err)
	}
	return until(ctx, patience, "Service "+name+" gone", func(ctx context.Context) (bool, string, error) {
		service, err := services.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", err
		}
		return false, fmt.Sprintf("conditions %v", service.Status.Conditions), nil
	})
}

// onlyNodeBlocks expects that the account holds no block but those of the nodes, which are the user's.
func (s *story) onlyNodeBlocks(ctx context.Context, nodeBlocks ...string) error {
	left, err := s.blocks(ctx)
	if err != nil {
		return err
	}
	for _, b := range left {
		if !slices.Contains(nodeBlocks, b.ID) {
			return fmt.Errorf("block %s (%s) is left in the account", b.CIDR, b.Status)
		}
	}
	return nil
}

// handBack is the user giving back servers and node blocks in the portal, so that the account is as empty as it can be.
func (s *story) handBack(ctx context.Context, nodeBlocks ...string) error {
	for _, server := range s.Servers {
		if err := s.Sim.Edit(ctx, pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: server.ID}); err != nil {
			return fmt.Errorf("give back server %s: %w", server.Name, err)
		}
	}
	for _, block := range nodeBlocks {
		if err := s.Sim.Edit(ctx, pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: block}); err != nil {
			return fmt.Errorf("give back node block %s: %w", block, err)
		}
	}
	left, err := s.blocks(ctx)
	if err != nil {
		return err
	}
	s.say("the user gives back the servers and the blocks of their own addresses in the portal")
	s.count("blocks_left_in_account", len(left), "blocks")
	if len(left) > 0 {
		return fmt.Errorf("%d blocks are left in the account", len(left))
	}
	return s.checkRules(ctx)
}

// checkRules asks the simulator whether the controller broke a rule of the API.
func (s *story) checkRules(ctx context.Context) error {
	violations, err := s.Sim.Violations(ctx)
	if err != nil {
		return err
	}
	s.count("api_rules_broken", len(violations), "rules")
	for _, v := range violations {
		s.quote(string(v))
	}
	if len(violations) > 0 {
		return fmt.Errorf("the simulator convicts the controller of %d broken rules", len(violations))
	}
	bill, err := s.Sim.Money(ctx)
	if err != nil {
		return err
	}
	s.say("the account's bill: %s", bill)
	return nil
}

func (s *story) blocks(ctx context.Context) ([]cluster.AccountBlock, error) {
	state, err := s.Sim.State(ctx)
	return state.Blocks, err
}
