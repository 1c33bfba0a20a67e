package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// leaseName is the Lease of the controller, in kube-system.
const leaseName = "phoenixnap-cloud-controller-manager"

// read reads the cluster, part by part. Facts.Unreadable describes what the user may not read or what is malformed;
// after a request without an answer, nothing more is asked. The error is that of ctx.
func read(ctx context.Context, kube kubernetes.Interface, blocks ipBlocks, networks publicNetworks,
	now func() time.Time) (overview.Facts, error) {
	r := reader{ctx: ctx, kube: kube, ipBlocks: blocks, publicNetworks: networks}
	for _, part := range r.parts() {
		switch err := part.read(); {
		case err == nil:
		case ctx.Err() != nil:
			return overview.Facts{}, ctx.Err()
		case unanswered(err):
			return overview.Facts{Now: now(), Unread: overview.Parts(), Unreachable: err.Error()}, nil
		case apierrors.IsForbidden(err):
			r.unread(part.is, missing(part.verb, part.resource, part.namespace, part.shows+" cannot be shown"))
		default:
			r.unread(part.is, part.shows+" cannot be shown: "+err.Error())
		}
	}
	r.facts.Now = now()
	return r.facts, nil
}

// request is how a part of the cluster is read, with the permission that it needs.
type request struct {
	is                               overview.Part
	verb, resource, namespace, shows string
	read                             func() error
}

func (r *reader) parts() []request {
	const system = metav1.NamespaceSystem
	return []request{
		{overview.PartNodes, "list", "nodes", "", "Nodes", r.nodes},
		{overview.PartServices, "list", "services", everywhere, "Services", r.services},
		{overview.PartBlocks, "list", "ipblocks.networking.phoenixnap.com", "", "IP blocks", r.blocks},
		{overview.PartNetworks, "list", "publicnetworks.networking.phoenixnap.com", "",
			"When the account was read, and its public network", r.networks},
		{overview.PartAccount, "list", "events", metav1.NamespaceDefault, "What is wrong in the account", r.events},
		{overview.PartController, "get", "leases.coordination.k8s.io", system, "The state of the controller", r.leader},
		{overview.PartAgents, "list", "leases.coordination.k8s.io", system, "How old the reports of agents are",
			r.agents},
		{overview.PartPods, "list", "pods", system, "Why the controller or an agent does not run", r.pods},
	}
}

func (r *reader) unread(part overview.Part, why string) {
	r.facts.Unread = append(r.facts.Unread, part)
	r.facts.Unreadable = append(r.facts.Unreadable, why)
}

// unanswered reports whether the API server did not answer, or does not know who asks: another request has no chance.
func unanswered(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || apierrors.IsUnauthorized(err)
}

// everywhere stands for all namespaces.
const everywhere = "*"

// missing describes which permission is missing, what for, and how to check it; namespace "" means cluster-scoped.
func missing(verb, resource, namespace, consequence string) string {
	where := " in namespace " + namespace
	flag := " --namespace " + namespace
	switch namespace {
	case "":
		where = ""
		flag = ""
	case everywhere:
		where = " in all namespaces"
		flag = " --all-namespaces"
	}
	return fmt.Sprintf("%s: you lack the verb %q on the resource %q%s (kubectl auth can-i %s %s%s)",
		consequence, verb, resource, where, verb, resource, flag)
}

type reader struct {
	ctx   context.Context //nolint:containedctx // used only during one call of read
	kube  kubernetes.Interface
	facts overview.Facts

	ipBlocks       ipBlocks
	publicNetworks publicNetworks
}

// ipBlocks and publicNetworks are the objects on the API server.
type (
	ipBlocks interface {
		List(ctx context.Context, options metav1.ListOptions) (*v1beta1.IPBlockList, error)
	}
	publicNetworks interface {
		List(ctx context.Context, options metav1.ListOptions) (*v1beta1.PublicNetworkList, error)
	}
)

func (r *reader) nodes() error {
	list, err := r.kube.CoreV1().Nodes().List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	r.facts.Nodes = list.Items
	return nil
}

func (r *reader) services() error {
	list, err := r.kube.CoreV1().Services(metav1.NamespaceAll).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	r.facts.Services = list.Items
	return nil
}

func (r *reader) blocks() error {
	list, err := r.ipBlocks.List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return client.Explain("list the IPBlocks", err)
	}
	r.facts.Blocks = list.Items
	return nil
}

func (r *reader) networks() error {
	list, err := r.publicNetworks.List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return client.Explain("list the PublicNetworks", err)
	}
	r.facts.Networks = list.Items
	return nil
}

// events reads what the controller says of the account. Events about a Namespace are in the namespace "default".
func (r *reader) events() error {
	list, err := r.kube.CoreV1().Events(metav1.NamespaceDefault).List(r.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Namespace,involvedObject.name=" + metav1.NamespaceSystem,
	})
	if err != nil {
		return fmt.Errorf("list events in namespace %s: %w", metav1.NamespaceDefault, err)
	}
	r.facts.Events = list.Items
	return nil
}

func (r *reader) pods() error {
	list, err := r.kube.CoreV1().Pods(metav1.NamespaceSystem).List(r.ctx, metav1.ListOptions{
		LabelSelector: overview.PodSelector,
	})
	if err != nil {
		return fmt.Errorf("list pods in namespace %s: %w", metav1.NamespaceSystem, err)
	}
	r.facts.Pods = list.Items
	return nil
}

// agents reads the Leases of all, because RBAC knows no prefix.
func (r *reader) agents() error {
	list, err := r.kube.CoordinationV1().Leases(metav1.NamespaceSystem).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Leases in namespace %s: %w", metav1.NamespaceSystem, err)
	}
	r.facts.Agents = list.Items
	return nil
}

func (r *reader) leader() error {
	lease, err := r.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(r.ctx, leaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Lease %s/%s: %w", metav1.NamespaceSystem, leaseName, err)
	}
	r.facts.Leader = lease
	return nil
}
