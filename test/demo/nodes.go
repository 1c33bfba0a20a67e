//go:build linux

package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// nodes reports whether all Nodes, or those with some names, pass a test, and the state of those that do not.
func (s *story) nodes(ctx context.Context, test nodeTest, names ...string) (bool, string, error) {
	list, err := s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, "", fmt.Errorf("list nodes: %w", err)
	}
	passed := 0
	var failing []string
	for i, n := range list.Items {
		if len(names) > 0 && !slices.Contains(names, n.Name) {
			continue
		}
		if ok, seen := test(&list.Items[i]); ok {
			passed++
		} else {
			failing = append(failing, n.Name+": "+seen)
		}
	}
	wanted := cmp.Or(len(names), len(s.Servers))
	return len(failing) == 0 && passed == wanted, strings.Join(failing, "; "), nil
}

// nodeTest reports whether a Node is as it should be, and its state.
type nodeTest func(*corev1.Node) (bool, string)

// awaitNodes waits until all Nodes, or those with some names, pass a test, and returns when that was.
func (s *story) awaitNodes(ctx context.Context, limit time.Duration, what string, test nodeTest,
	names ...string) (time.Time, error) {
	return until(ctx, limit, what, func(ctx context.Context) (bool, string, error) {
		return s.nodes(ctx, test, names...)
	})
}

func uninitialised(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// mayAnnounce reports whether a Node is ready for the public network, and kube-vip runs there.
func (s *story) mayAnnounce(n *corev1.Node) (bool, string) {
	ok, seen := vlanReady(n)
	return ok && s.KubeVIPRunsOn(n.Name), seen
}

// vlanReady reports whether condition and label of a Node both show that it is ready for the public network.
func vlanReady(n *corev1.Node) (bool, string) {
	condition := contract.FindNodeCondition(n, contract.ConditionVLANReady)
	if condition == nil {
		return false, "no condition " + contract.ConditionVLANReady
	}
	label := n.Labels[contract.NodeVLANReady]
	return condition.Status == corev1.ConditionTrue && label == "true",
		fmt.Sprintf("%s=%s (%s), label %q", contract.ConditionVLANReady, condition.Status, condition.Reason, label)
}

// showNodes prints the Nodes with condition and label.
func (s *story) showNodes(ctx context.Context) error {
	return s.kubectl(ctx, "get", "nodes", "-o", "custom-columns=NAME:.metadata.name,"+
		`VLAN-READY:.status.conditions[?(@.type=="`+contract.ConditionVLANReady+`")].status,`+
		`REASON:.status.conditions[?(@.type=="`+contract.ConditionVLANReady+`")].reason,`+
		`LABEL:.metadata.labels.phoenixnap\.com/vlan-ready`)
}

func (s *story) service(ctx context.Context, name string) (*corev1.Service, error) {
	service, err := s.Kube.CoreV1().Services(cluster.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Service %s: %w", name, err)
	}
	return service, nil
}

// announcer is the server whose hardware address the gateway has for the Service's address: the wire's own word.
func (s *story) announcer(ctx context.Context) (string, error) {
	return s.announcerOf(ctx, lab.Gateway, s.address)
}

// announcerOf is the same for an address behind the gateway of any location.
func (s *story) announcerOf(ctx context.Context, gateway string, address netip.Addr) (string, error) {
	neighbours, err := s.Lab.Neighbours(ctx, gateway)
	if err != nil {
		return "", fmt.Errorf("ARP table of the gateway: %w", err)
	}
	for _, server := range s.Servers {
		mac, err := s.Lab.ReadFile(ctx, server.Name, "/sys/class/net/"+cluster.PublicInterface+"/address")
		if err != nil {
			continue // a dead server has no interface to ask
		}
		for _, n := range neighbours {
			if n.IP == address && n.MAC == strings.TrimSpace(string(mac)) {
				return server.Name, nil
			}
		}
	}
	return "", errors.New("the gateway knows no server's hardware address for " + address.String())
}

// kubectl runs kubectl as a user would and shows what it prints.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	out, err := s.printed(ctx, args...)
	s.quote(out)
	return err
}

// printed runs kubectl as a user would and returns what it prints.
func (s *story) printed(ctx context.Context, args ...string) (string, error) {
	program, err := tools.Binary(ctx, "kubectl")
	if err != nil {
		return "", fmt.Errorf("kubectl: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", s.AdminKubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return string(out), nil
}
