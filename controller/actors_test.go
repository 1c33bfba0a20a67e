package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// patience is how long anything may take that the account, another change or a pause has to let through.
const patience = 3 * time.Minute

// scene is a cluster and an account that the tests change as their users would.
type scene struct {
	*testing.T
	client kubernetes.Interface
	space  string // the namespace of the Services
	sim    *pnapsim.Sim
	url    string
}

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) until(within time.Duration, check func() error) {
	s.Helper()
	eventually(s.T, within, check)
}

// node registers a Node that is to carry the traffic of load balancers, as ready as its agent says.
func (s *scene) node(name string) {
	s.Helper()
	register(s.T, s.client, name)
	s.label(name, `"true"`)
	report(s.T, s.client, name, corev1.ConditionTrue)
	lives := make(chan struct{})
	go func() {
		defer close(lives)
		s.lives(contract.AgentLeasePrefix + name)
	}()
	s.Cleanup(func() { <-lives })
}

// lives renews the Lease of an agent until the test ends, so that its word counts however long the test takes.
func (s *scene) lives(name string) {
	leases := s.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := leases.Create(s.Context(), lease, metav1.CreateOptions{})
	beat := time.NewTicker(10 * time.Second)
	defer beat.Stop()
	for ctx := s.Context(); err == nil && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-beat.C:
		}
		patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err = leases.Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	if err != nil && s.Context().Err() == nil {
		s.Errorf("Lease %s: %v", name, err)
	}
	if err := leases.Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
}

// label sets the label that the tests select Nodes by to a JSON value.
func (s *scene) label(name, value string) {
	s.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"public":%s}}}`, value)
	_, err := s.client.CoreV1().Nodes().Patch(s.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	s.ok(err)
}

// service creates a Service of type LoadBalancer with annotations in pairs of name and value.
func (s *scene) service(name, class string, annotations ...string) *corev1.Service {
	s.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if class != "" {
		service.Spec.LoadBalancerClass = ptr.To(class)
	}
	for pair := range slices.Chunk(annotations, 2) {
		service.Annotations[pair[0]] = pair[1]
	}
	made, err := s.client.CoreV1().Services(s.space).Create(s.Context(), service, metav1.CreateOptions{})
	s.ok(err)
	return made
}

func (s *scene) get(namespace, name string) *corev1.Service {
	s.Helper()
	service, err := s.client.CoreV1().Services(namespace).Get(s.Context(), name, metav1.GetOptions{})
	s.ok(err)
	return service
}

func (s *scene) patch(name, patch string) {
	s.Helper()
	_, err := s.client.CoreV1().Services(s.space).Patch(s.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	s.ok(err)
}

// published waits for the address of a Service.
func (s *scene) published(namespace, name string) netip.Addr {
	s.Helper()
	var address netip.Addr
	s.until(patience, func() error {
		service := s.get(namespace, name)
		ingress := service.Status.LoadBalancer.Ingress
		if len(ingress) != 1 || ingress[0].IP != service.Annotations[contract.ServiceIPAddress] {
			return fmt.Errorf("service %s: %+v, annotations %v, conditions %+v", name, ingress, service.Annotations,
				service.Status.Conditions)
		}
		var err error
		address, err = netip.ParseAddr(ingress[0].IP)
		return err
	})
	return address
}

func (s *scene) delete(names ...string) {
	s.Helper()
	for _, name := range names {
		s.ok(s.client.CoreV1().Services(s.space).Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
}

func (s *scene) gone(namespace string, names ...string) {
	s.Helper()
	for _, name := range names {
		s.until(patience, func() error {
			service, err := s.client.CoreV1().Services(namespace).Get(s.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("service %s: %+v: %w", name, service.Status.Conditions, err)
		})
	}
}

// event waits for an event.
func (s *scene) event(within time.Duration, kind, name, reason string, words ...string) {
	s.Helper()
	s.until(within, func() error {
		events, err := s.client.CoreV1().Events("").List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for _, event := range events.Items {
			if event.InvolvedObject.Kind != kind || event.InvolvedObject.Name != name {
				continue
			}
			if event.Reason == reason && !slices.ContainsFunc(words,
				func(word string) bool { return !strings.Contains(event.Message, word) }) {
				return nil
			}
			others = append(others, event.Reason+": "+event.Message)
		}
		return fmt.Errorf("no event %s %q on %s %s, but %q", reason, words, kind, name, others)
	})
}

// block is an IP block as the API reports it.
type block struct {
	id, status, cidr string
	tags             map[string]string
}

func (s *scene) blocks() []block {
	var all []block
	for _, view := range s.sim.State(simtest.AccountID).Blocks {
		b := block{id: fmt.Sprint(view["id"]), status: fmt.Sprint(view["status"]), cidr: fmt.Sprint(view["cidr"]),
			tags: map[string]string{}}
		for _, each := range list(view["tags"]) {
			b.tags[fmt.Sprint(each["name"])] = fmt.Sprint(each["value"])
		}
		all = append(all, b)
	}
	return all
}

// list is a list of objects of the API, of whatever type the simulator makes it.
func list(of any) []map[string]any {
	var all []map[string]any
	if many, ok := of.([]any); ok {
		for _, each := range many {
			if one, ok := each.(map[string]any); ok {
				all = append(all, one)
			}
		}
	}
	return all
}

// find returns the block with that ID or CIDR.
func (s *scene) find(name string) (block, error) {
	for _, b := range s.blocks() {
		if b.id == name || b.cidr == name {
			return b, nil
		}
	}
	return block{}, fmt.Errorf("there is no IP block %s among %v", name, s.blocks())
}

func (s *scene) blockOf(service string) block {
	s.Helper()
	b, err := s.find(s.get(s.space, service).Annotations[contract.ServiceIPBlockCIDR])
	s.ok(err)
	return b
}

// vanishes waits until a block is not in the account any more.
func (s *scene) vanishes(within time.Duration, id string) {
	s.Helper()
	s.until(within, func() error {
		if b, err := s.find(id); err == nil {
			return fmt.Errorf("block %+v is still there", b)
		}
		return nil
	})
}

// joins returns how often servers were asked to join the network, and how often by force.
func (s *scene) joins() (all, forced int) {
	for _, entry := range s.sim.Log(0) {
		if entry.Method == http.MethodPost && strings.HasSuffix(entry.Path, "/public-networks") {
			all++
			if strings.Contains(entry.Query, "force=true") {
				forced++
			}
		}
	}
	return all, forced
}

// member returns what a Node still lacks of being joined to the public network; ips is a part of its addresses.
func member(node *corev1.Node, ips string) error {
	facts, ok, err := contract.NodeNetworkOf(node.Annotations, "")
	if err != nil || !ok || !facts.Member || node.Annotations[contract.NodeMembershipManaged] != "default" {
		return fmt.Errorf("node %s: %v: %w", node.Name, node.Annotations, err)
	}
	if got := fmt.Sprint(facts.IPs); !strings.Contains(got, ips) {
		return fmt.Errorf("node %s has the addresses %s", node.Name, got)
	}
	return nil
}

// discreet checks that neither the log of a process nor any event contains a secret, and that nothing was forbidden.
func (s *scene) discreet(p *process) {
	s.Helper()
	events, err := s.client.CoreV1().Events("").List(s.Context(), metav1.ListOptions{})
	s.ok(err)
	texts := []string{p.output()}
	for _, event := range events.Items {
		texts = append(texts, event.Message)
	}
	if found := s.sim.FindSecrets(strings.Join(texts, "\n")); len(found) > 0 {
		s.Errorf("log or events hold secrets: %v", found)
	}
	if strings.Contains(p.output(), "is forbidden: User") { // phoenixNAP says forbidden of what is gone
		s.Error("Kubernetes refused something")
	}
}
