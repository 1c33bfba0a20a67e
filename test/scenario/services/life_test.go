//go:build linux

package services

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// lifeKinds differ in what happens to the Service. Their Services begin late, when there is room in the network.
func lifeKinds() []kind {
	return []kind{
		//proves:service-changes/type-away
		//proves:service-changes/type-back
		{"type changed back and forth", nil, checkType},
		//proves:service-changes/delete
		//proves:service-changes/recreate
		{"deleted and made again", nil, checkAgain},
		{"two clusters in one account", nil, checkNeighbours},
		{"etcd restored", nil, checkRestore},
		// The last that needs addresses: after it, free ones are in quarantine for ten minutes.
		{"definition deleted", nil, checkDefinition},
	}
}

// checkType: the address and its block go with the type, and a Service that becomes a load balancer again is served.
// Each type has a Service of its own: one that is changed many times within minutes has to wait.
func checkType(h *harness) {
	for _, other := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort} {
		name := "typed-" + strings.ToLower(string(other))
		h.create(loadBalancer(name))
		address := h.published(name)
		h.answered(tcp(address, 80))
		block := h.blockOf(h.get(name))
		h.withdraw(ccm, name)
		h.patch(name, spec("type", other))
		h.until(publishLimit, "nothing is left of the load balancer", func() (bool, string) {
			s := h.get(name)
			held := slices.ContainsFunc(h.blocks(), func(b cluster.AccountBlock) bool { return b.ID == block.ID })
			clean := !publishedAddress(s).IsValid() && s.Annotations[contract.ServiceIPAddress] == "" &&
				len(s.Finalizers) == 0 && len(s.Status.Conditions) == 0
			return clean && !held, s.Spec.String() + s.Status.String()
		})
		h.refused(tcp(address, 80))
		begun := time.Now()
		h.patch(name, spec("type", corev1.ServiceTypeLoadBalancer))
		address = h.published(name)
		h.answeredAfterMove(tcp(address, 80))
		h.figure("type_back_from_"+strings.ToLower(string(other))+"_answered_after", time.Since(begun), "s")
		h.remove(name)
	}
}

// checkAgain: a Service that was deleted and is made again under its name is served.
func checkAgain(h *harness) {
	h.create(loadBalancer("again"))
	address := h.published("again")
	h.answered(tcp(address, 80))
	h.namesAnnouncer("again", address)
	first := h.blockOf(h.get("again"))
	h.remove("again")
	h.figure("released_after", h.removed("again"), "s")
	if slices.ContainsFunc(h.blocks(), func(b cluster.AccountBlock) bool { return b.ID == first.ID }) {
		h.Errorf("the Service is gone and its block %s is not", first.CIDR)
	}
	h.refused(tcp(address, 80))
	begun := time.Now()
	h.create(loadBalancer("again"))
	h.answered(tcp(h.published("again"), 80))
	h.figure("recreated_answered_after", time.Since(begun), "s")
	h.remove("again")
}

// namesAnnouncer waits until the Service names the server that answers for its address, where the mode has that, and no
// server where not.
func (h *harness) namesAnnouncer(name string, address netip.Addr) {
	h.Helper()
	h.until(answerLimit, "Service "+name+" names its announcer", func() (bool, string) {
		s := h.get(name)
		by := s.Annotations[contract.ServiceAnnouncedBy]
		since := s.Annotations[contract.ServiceAnnouncedSince]
		holder, err := h.holder(h.Context(), address)
		h.must("who holds "+address.String(), err)
		if !h.mode.names {
			return by == "" && since == "", by
		}
		return holder != "" && by == holder && since != "",
			fmt.Sprintf("%q since %q, the gateway knows %q", by, since, holder)
	})
}

// checkNeighbours: another cluster with a controller, an API client and a server of its own uses the same account and
// the same public network. Services of the same name have different blocks, and no controller changes those of the
// other: the simulator reports a client that changes what belongs to another one.
func checkNeighbours(h *harness) {
	other := h.neighbour()
	defer func() {
		if err := other.Stop(); err != nil {
			h.Error(err)
		}
	}()
	services := other.Kube.CoreV1().Services(cluster.Namespace)
	for _, s := range []*corev1.Service{
		loadBalancer("twin"), loadBalancer("thief", annotated(contract.ServiceIPBlock, ownObject)),
	} {
		_, err := services.Create(h.Context(), s, metav1.CreateOptions{})
		h.must("create Service "+s.Name+" of the other cluster", err)
	}
	h.create(loadBalancer("twin"))
	ours := h.published("twin")
	theirs := publishedIn(h, other.Kube, "twin", netip.Addr.IsValid)
	s, err := services.Get(h.Context(), "twin", metav1.GetOptions{})
	h.must("read the other cluster's Service", err)
	block := h.blockOf(s)
	h.claim(neighbourCCM, "twin", block, theirs)
	if ours == theirs || block.ID == h.blockOf(h.get("twin")).ID {
		h.Errorf("two clusters share %s, %s of block %s", ours, theirs, block.CIDR)
	}
	h.answered(tcp(ours, 80))
	h.refusedIn(other, "thief")
	h.remove("twin")
	h.removed("twin")
	if !slices.ContainsFunc(h.blocks(), func(b cluster.AccountBlock) bool {
		return b.ID == block.ID &&
			b.Status == block.Status
	}) {
		h.Errorf("block %s of the other cluster went with our Service", block.CIDR)
	}
	h.withdraw(neighbourCCM, "twin")
	for _, name := range []string{"twin", "thief"} {
		h.must("delete Service "+name, services.Delete(h.Context(), name, metav1.DeleteOptions{}))
		goneFrom(h, other.Kube, name)
	}
	h.noOrphans(other)
}

// neighbour is another cluster in the account. Its Node has no agent, as where announcing is left to others.
func (h *harness) neighbour() *cluster.Cluster {
	h.Helper()
	dir := filepath.Join(h.dir, "neighbour")
	h.must("directory of the other cluster", os.Mkdir(dir, 0o700))
	other, err := cluster.New(cluster.Options{
		Dir: dir, Scale: scale, Servers: 1, Client: pnapsim.ClientSeed{ID: neighbourCCM, Secret: neighbourSecret},
	})
	h.must("prepare the other cluster", err)
	other.ShareAccount(h.Cluster)
	other.Servers = []cluster.Server{{Server: wire.Server{Name: neighbour, ID: neighbourID,
		Private: netip.MustParsePrefix("10.0.0.99/24")}}}
	h.must("start the other control plane", other.StartControlPlane(h.Context()))
	h.must("register the other cluster's Node", other.RegisterNodes(h.Context()))
	h.must("start the other controller", other.StartController(h.Context()))
	return other
}

// refusedIn waits until a cluster refuses a Service for good, with nothing published.
func (h *harness) refusedIn(c *cluster.Cluster, name string) {
	h.Helper()
	h.until(publishLimit, "Service "+name+" is refused", func() (bool, string) {
		s, err := c.Kube.CoreV1().Services(cluster.Namespace).Get(h.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		refused := slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == contract.ServiceConditionBlockAssigned && c.Status == metav1.ConditionFalse &&
				c.Reason == "BlockUnusable"
		})
		return refused && !publishedAddress(s).IsValid(), s.Status.String()
	})
}

// noOrphans fails when one of the clusters took a block of the other for an unused one.
func (h *harness) noOrphans(other *cluster.Cluster) {
	h.Helper()
	for _, c := range []*cluster.Cluster{h.Cluster, other} {
		events, err := c.Kube.CoreV1().Events(metav1.NamespaceAll).List(h.Context(), metav1.ListOptions{})
		h.must("list events", err)
		for _, e := range events.Items {
			if strings.HasPrefix(e.Reason, "Orphan") {
				h.Errorf("%s: %s", e.Reason, e.Message)
			}
		}
	}
}
