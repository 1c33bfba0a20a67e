package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/monitor"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/netinfo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// session diagnoses one node, once or again and again.
type session struct {
	flags    diagnoseFlags
	nodeName string
	// byHand is what a person said of the network; given tells whether they did.
	byHand check.Expected
	given  bool
	// asked is the address that a person asked for, invalid when they asked for the node.
	asked  netip.Addr
	reader *netinfo.Reader
	asker  *l2.Asker
}

func newSession(f diagnoseFlags, asked netip.Addr) (*session, error) {
	name, err := f.name()
	if err != nil {
		return nil, err
	}
	byHand, given, err := f.network.expected()
	if err != nil {
		return nil, usageError{err}
	}
	return &session{flags: f, nodeName: name, byHand: byHand, given: given, asked: asked, reader: netinfo.NewReader(), asker: l2.NewAsker()}, nil
}

// look diagnoses once.
func (s *session) look(ctx context.Context) (diagnose.Document, error) {
	said := s.ask(ctx)
	expected := s.expected(said)
	snapshot, err := monitor.Look(ctx, s.reader, s.asker, expected)
	if err != nil {
		return diagnose.Document{}, fmt.Errorf("examine the node: %w", err)
	}
	report := check.Evaluate(expected, snapshot)
	document := diagnose.Document{
		SchemaVersion: diagnose.SchemaVersion, Time: time.Now().UTC().Truncate(time.Second), Node: s.nodeName,
		ServerID: expected.Network.ServerID, Network: expected.Describe(), Interface: report.Interface, Uplink: report.Uplink,
		Renderer: snapshot.Renderer, Findings: report.Findings,
	}
	if said.err != nil {
		document.APIServer = said.err.Error()
	}
	view := announcement.View{Report: report, Snapshot: snapshot}
	if s.asked.IsValid() {
		return s.lookAtAddress(ctx, document, said, view)
	}
	return s.lookAtAddresses(ctx, document, view, said.targets())
}

// lookAtAddresses adds what the wire says of the addresses of Services.
func (s *session) lookAtAddresses(ctx context.Context, d diagnose.Document, view announcement.View, targets []announcement.Target) (diagnose.Document, error) {
	if len(targets) == 0 || view.Report.Interface == "" {
		return d.Sum(), nil
	}
	if unasked, broken := announcement.Unasked(view.Report, targets); broken {
		d.Findings = append(d.Findings, unasked...)
		return d.Sum(), nil
	}
	observations, err := announcement.Observe(ctx, s.asker, s.reader, view, targets)
	if err != nil {
		return d, fmt.Errorf("look the addresses of Services up: %w", err)
	}
	for _, o := range observations {
		d.Findings = append(d.Findings, announcement.Judge(o))
	}
	return d.Sum(), nil
}

func (s *session) expected(said known) check.Expected {
	var e check.Expected
	switch {
	case s.given:
		e = s.byHand
	case said.node != nil:
		e = check.ExpectedOf(said.node.Annotations, contract.NodeIPs(said.node))
	default:
		e.Unreached = said.err.Error()
	}
	e.Interface, e.Uplink = s.flags.iface, s.flags.uplink
	for _, t := range said.targets() {
		e.Virtual = append(e.Virtual, t.Address)
	}
	if s.asked.IsValid() && !slices.Contains(e.Virtual, s.asked) {
		e.Virtual = append(e.Virtual, s.asked)
	}
	return e
}

// watchKernel calls for a look whenever the kernel reports a change.
func (s *session) watchKernel(ctx context.Context, changed chan<- struct{}) error {
	return netinfo.Watch(ctx, func() {
		select {
		case changed <- struct{}{}:
		default: // a look is called for already
		}
	})
}

// known is what the API server says.
type known struct {
	node     *corev1.Node
	services []*corev1.Service
	// nodes are all Nodes; read only where an address is asked for.
	nodes []corev1.Node
	// err says why the API server was not or not fully asked; nil when it was, or needed not.
	err error
}

func (k known) targets() []announcement.Target { return announcement.Targets(k.services) }

// ask asks the API server. One that cannot be reached is no reason to give up: what can be judged without it is.
func (s *session) ask(ctx context.Context) known {
	if s.given && s.flags.kubeconfig == "" && !inCluster() {
		return known{}
	}
	client, err := s.flags.client()
	if err != nil {
		return known{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.flags.timeout)
	defer cancel()
	var k known
	k.node, k.err = getNode(ctx, client, s.nodeName)
	if k.err != nil && !s.given {
		return k
	}
	services, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		k.err = errors.Join(k.err, fmt.Errorf("list Services: %w", err))
		return k
	}
	for i := range services.Items {
		k.services = append(k.services, &services.Items[i])
	}
	if s.asked.IsValid() {
		k.askForNodes(ctx, client)
	}
	return k
}

func getNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Node %s: %w", name, err)
	}
	return node, nil
}

func (k *known) askForNodes(ctx context.Context, client kubernetes.Interface) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		k.err = errors.Join(k.err, fmt.Errorf("list Nodes: %w", err))
		return
	}
	k.nodes = list.Items
}

// inCluster tells whether the process runs in a pod with a ServiceAccount.
func inCluster() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }
