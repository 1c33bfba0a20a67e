//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// everyNode reports whether all Nodes pass a test, and the state of those that do not.
func (s *story) everyNode(ctx context.Context, test func(*corev1.Node) (bool, string)) (bool, string, error) {
	nodes, err := s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, "", fmt.Errorf("list nodes: %w", err)
	}
	var failing []string
	for i := range nodes.Items {
		if ok, seen := test(&nodes.Items[i]); !ok {
			failing = append(failing, nodes.Items[i].Name+": "+seen)
		}
	}
	return len(failing) == 0 && len(nodes.Items) == len(s.Servers), strings.Join(failing, "; "), nil
}

// node reports whether one Node passes a test, and its state otherwise.
func (s *story) node(ctx context.Context, name string, test func(*corev1.Node) (bool, string)) (bool, string, error) {
	node, err := s.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, "", fmt.Errorf("get node %s: %w", name, err)
	}
	ok, seen := test(node)
	return ok, seen, nil
}

func uninitialised(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return true
		}
	}
	return false
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
	return s.kubectl(ctx, "get", "nodes", "-L", contract.NodeVLANReady, "-o", "custom-columns=NAME:.metadata.name,"+
		`VLAN-READY:.status.conditions[?(@.type=="`+contract.ConditionVLANReady+`")].status,`+
		`REASON:.status.conditions[?(@.type=="`+contract.ConditionVLANReady+`")].reason,`+
		`LABEL:.metadata.labels.phoenixnap\.com/vlan-ready`)
}

func (s *story) service(ctx context.Context) (*corev1.Service, error) {
	service, err := s.Kube.CoreV1().Services(cluster.Namespace).Get(ctx, cluster.Service, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the Service: %w", err)
	}
	return service, nil
}

// announcer is the server whose hardware address the gateway has for the Service's address: the wire's own word.
func (s *story) announcer(ctx context.Context) (string, error) {
	neighbours, err := s.Lab.Neighbours(ctx, lab.Gateway)
	if err != nil {
		return "", fmt.Errorf("ARP table of the gateway: %w", err)
	}
	for _, server := range s.Servers {
		mac, err := s.Lab.ReadFile(ctx, server.Name, "/sys/class/net/"+cluster.PublicInterface+"/address")
		if err != nil {
			continue // a dead server has no interface to ask
		}
		for _, n := range neighbours {
			if n.IP == s.address && n.MAC == strings.TrimSpace(string(mac)) {
				return server.Name, nil
			}
		}
	}
	return "", errors.New("the gateway knows no server's hardware address for " + s.address.String())
}

// kubectl runs kubectl as a user would and shows what it prints.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	program, err := tools.Binary(ctx, "kubectl")
	if err != nil {
		return fmt.Errorf("kubectl: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", s.AdminKubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	s.quote(string(out))
	if err != nil {
		return fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return nil
}
