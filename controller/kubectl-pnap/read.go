package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// leaseName is the Lease of the controller, in kube-system.
const leaseName = "phoenixnap-cloud-controller-manager"

// read reads the cluster. What the user may not read is listed in Facts.Unreadable; any other failure is an error.
func read(ctx context.Context, kube kubernetes.Interface, now func() time.Time) (overview.Facts, error) {
	r := reader{ctx: ctx, kube: kube}
	for _, part := range []struct {
		verb, resource, namespace, shows string
		read                             func() error
	}{
		{"list", "nodes", "", "Nodes", r.nodes},
		{"list", "services", everywhere, "Services", r.services},
		{"list", "configmaps", metav1.NamespaceSystem, "Owners of addresses in shared IP blocks", r.ledgers},
		{"get", "configmaps", metav1.NamespaceSystem, "IP blocks", r.report},
		{"get", "leases.coordination.k8s.io", metav1.NamespaceSystem, "The state of the controller", r.leader},
	} {
		switch err := part.read(); {
		case err == nil:
		case apierrors.IsForbidden(err):
			r.facts.Unreadable = append(r.facts.Unreadable,
				missing(part.verb, part.resource, part.namespace, part.shows+" cannot be shown"))
		default:
			return overview.Facts{}, err
		}
	}
	r.facts.Now = now()
	return r.facts, nil
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
	listing, err := allocation.NewStore(r.kube).List(r.ctx)
	r.facts.Ledgers = listing.Ledgers
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
		return fmt.Errorf("ConfigMap %s/%s: %w; delete it, and the controller creates it again",
			metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	r.facts.Report = &report
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
