//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
)

// kubeVIPFlags say where kube-vip has its Lease for all Services.
type kubeVIPFlags struct{ namespace, lease string }

func (f *kubeVIPFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, "kube-vip-namespace", metav1.NamespaceSystem,
		"namespace in which kube-vip runs; its lease is there where it has one for all Services")
	flags.StringVar(&f.lease, "kube-vip-lease", kubevip.GlobalLease,
		"name of kube-vip's lease for all Services, as its option svc_leasename has it; it may begin with a namespace "+
			"and /")
}

func (f *kubeVIPFlags) check() error {
	parts := strings.Split(f.key(), "/")
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return usageError{fmt.Errorf("--kube-vip-lease %q: give the name of a lease, or its namespace and name as "+
			"kube-system/%s", f.lease, kubevip.GlobalLease)}
	}
	return nil
}

// key is namespace and name of the Lease.
func (f *kubeVIPFlags) key() string { return kubevip.Key(f.namespace, f.lease) }

// announcers returns the kinds of announcers, one of which reads kube-vip's Leases.
func (f *kubeVIPFlags) announcers(client kubernetes.Interface, node string) func(func()) (announcer.Set, network.Part) {
	return func(changed func()) (announcer.Set, network.Part) {
		elections := kubevip.NewReader(client.CoordinationV1(), f.key(), node, changed)
		return kinds.All(elections.Of), elections
	}
}
