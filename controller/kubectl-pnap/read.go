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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// leaseName is the Lease of the controller, in kube-system.
const leaseName = "phoenixnap-cloud-controller-manager"

// read reads the cluster, part by part. Facts.Unreadable describes what the user may not read or what is malformed;
// after a request without an answer, nothing more is asked. The error is that of ctx.
func read(ctx context.Context, kube kubernetes.Interface, blocks allocation.IPBlocks, now func() time.Time,
) (overview.Facts, error) {
	r := reader{ctx: ctx, kube: kube, allocations: allocation.NewReader(blocks)}
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
		{overview.PartAllocations, "list", "ipblocks.networking.phoenixnap.com", "",
			"Owners of addresses in shared IP blocks", r.ledgers},
		{overview.PartBlocks, "get", "configmaps", system, "IP blocks", r.report},
		{overview.PartAccount, "list", "events", metav1.NamespaceDefault, "Why the account cannot be read", r.failures},
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

	allocations *allocation.Store
}

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

func (r *reader) ledgers() error {
	listing, err := r.allocations.List(r.ctx)
	r.facts.Ledgers = listing.Ledgers
	r.facts.Brought = listing.BroughtBlocks
	for _, unread := range listing.Unreadable {
		r.facts.Unreadable = append(r.facts.Unreadable, "Owners of addresses in IP block "+unread.BlockID+
			" cannot be shown: "+unread.Problem)
	}
	return err
}

func (r *reader) report() error {
	configMaps := r.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object, err := configMaps.Get(r.ctx, contract.BlockReportName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	report, err := contract.ParseBlockReport(object.Data[contract.BlockReportKey])
	if err != nil {
		return fmt.Errorf(malformed, metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	r.facts.Report = &report
	return nil
}

// failures reads the events that say why the controller could not read the account. Events about a Namespace are in
// the namespace "default".
func (r *reader) failures() error {
	list, err := r.kube.CoreV1().Events(metav1.NamespaceDefault).List(r.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Namespace,involvedObject.name=" + metav1.NamespaceSystem +
			",reason=" + contract.AccountUnreadable,
	})
	if err != nil {
		return fmt.Errorf("list events in namespace %s: %w", metav1.NamespaceDefault, err)
	}
	r.facts.Failures = list.Items
	return nil
}

// malformed describes a ConfigMap of the controller that cannot be parsed.
const malformed = "ConfigMap %s/%s: %w; delete it, and the controller creates it again"

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
