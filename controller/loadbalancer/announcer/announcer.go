// Package announcer is who answers for the addresses of Services: one package below it for each kind, and the only
// place that chooses between them. It also has the switch of the admission policies, which apply while there is one.
package announcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/agents"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/none"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Announcer is a kind of announcer: software on the Nodes that answers for the addresses of Services.
type Announcer interface {
	// Publish returns the annotations by which a Service gets its address announced, as a JSON merge patch: nil removes
	// one. What a user chose stays. sharedAs names those who may have the address together, for all of whom one Node
	// answers; empty for one Service.
	Publish(service *corev1.Service, address netip.Addr, sharedAs string, nodes []*corev1.Node) map[string]any
	// Withdraw returns what takes back the annotations that Publish wrote for an address, as a JSON merge patch. What
	// depends on the Nodes stays if none are given.
	Withdraw(service *corev1.Service, address string, nodes []*corev1.Node) map[string]any
	// Names reports whether the annotations of a Service have the address announced, whoever wrote them.
	Names(service *corev1.Service, address netip.Addr) bool
	// ReleaseWait is how long at most a release waits until no machine answers for the address; 0 for an announcer that
	// withdraws an address only after the Service is gone.
	ReleaseWait() time.Duration
	// Silence returns why no machine answers for the address of a Service: a reason of the condition Announced, and the
	// end of its message. The reason is empty if the announcer knows none.
	Silence(ctx context.Context, service *corev1.Service) (reason, why string)
	// Ignores returns a warning for the user if the announcer has not taken up a Service of our class, which has had
	// its address since publishedAt. again is when to ask again; 0 for never.
	Ignores(ctx context.Context, service *corev1.Service, addresses []string, nodes []*corev1.Node,
		publishedAt time.Time) (warning string, again time.Duration)
	// Objects returns what maintains the objects of the cluster that the announcer needs; nil if it needs none.
	Objects() interface {
		Run(ctx context.Context) error
	}
}

// Deps are what announcers work with.
type Deps struct {
	// Kube reads what explains the silence of an address, and maintains the objects that an announcer needs.
	Kube kubernetes.Interface
	// Events are recorded on the Namespace kube-system.
	Events record.EventRecorder
	// Network is the public network; the zero value for what needs none.
	Network network.Named
}

// kind is a kind of announcer by the name that contract.NodeAnnouncer and the options use, and by its word in
// PublicNetworks.
type kind struct {
	name string
	word v1beta1.AnnouncerKind
	make func(Deps) Announcer
}

// kinds are all that may be configured.
var kinds = []kind{
	{contract.AnnouncerKubeVIP, v1beta1.AnnouncerKubeVIP, func(d Deps) Announcer { return kubevip.New(d.Kube, d.Network) }},
	{contract.AnnouncerAgent, v1beta1.AnnouncerAgent, func(d Deps) Announcer { return agents.New(d.Kube, d.Events) }},
}

// Kinds are the names of the announcers that may be configured.
func Kinds() []string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Word returns the word in PublicNetworks for an announcer of a name: None if there is none of the name.
func Word(name string) v1beta1.AnnouncerKind {
	for _, k := range kinds {
		if k.name == name {
			return k.word
		}
	}
	return v1beta1.AnnouncerNone
}

// KnowsByInterface reports whether an announcer of a name knows a public network by the name of its VLAN interface
// only, so that no two may have the same.
func KnowsByInterface(name string) bool { return name == contract.AnnouncerKubeVIP }

// For returns the announcer of a name: one that announces nothing if there is none of the name. What it publishes takes
// back what the other kinds have on the Service, so that a change of the option leaves no second announcer.
func For(name string, d Deps) Announcer {
	chosen := only{Announcer: none.Announcer{}}
	for _, k := range kinds {
		if k.name == name {
			chosen.Announcer = k.make(d)
		} else {
			chosen.others = append(chosen.others, k.make(d))
		}
	}
	return chosen
}

// only is one announcer in the place of all others.
type only struct {
	Announcer
	others []Announcer
}

// Publish implements Announcer.
func (o only) Publish(service *corev1.Service, address netip.Addr, sharedAs string, nodes []*corev1.Node,
) map[string]any {
	fields := map[string]any{}
	for _, other := range o.others {
		maps.Copy(fields, other.Withdraw(service, address.String(), nil))
	}
	maps.Copy(fields, o.Announcer.Publish(service, address, sharedAs, nodes))
	return fields
}

// Withdraw implements Announcer.
func (o only) Withdraw(service *corev1.Service, address string, nodes []*corev1.Node) map[string]any {
	fields := o.Announcer.Withdraw(service, address, nodes)
	for _, other := range o.others {
		maps.Copy(fields, other.Withdraw(service, address, nodes))
	}
	return fields
}

// Names implements Announcer.
func (o only) Names(service *corev1.Service, address netip.Addr) bool {
	return o.Announcer.Names(service, address) || slices.ContainsFunc(o.others, func(other Announcer) bool {
		return other.Names(service, address)
	})
}
