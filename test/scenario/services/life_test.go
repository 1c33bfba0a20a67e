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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
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
	}
}

// checkType: the address and its block go with the type, and a Service that becomes a load balancer again is served.
func checkType(r *rig) {
	r.create(loadBalancer("typed"))
	address := r.published("typed")
	r.answered(tcp(address, 80))
	for _, other := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort} {
		block := r.blockOf(r.get("typed"))
		r.withdraw(ccm, "typed")
		r.patch("typed", spec("type", other))
		r.until(publishLimit, "nothing is left of the load balancer", func() (bool, string) {
			s := r.get("typed")
			held := slices.ContainsFunc(r.blocks(), func(b cluster.AccountBlock) bool { return b.ID == block.ID })
			clean := !publishedAddress(s).IsValid() && s.Annotations[contract.ServiceIPAddress] == "" &&
				len(s.Finalizers) == 0 && len(s.Status.Conditions) == 0
			return clean && !held, s.Spec.String() + s.Status.String()
		})
		r.refused(tcp(address, 80))
		begun := time.Now()
		r.patch("typed", spec("type", corev1.ServiceTypeLoadBalancer))
		address = r.published("typed")
		r.answeredAfterMove(tcp(address, 80))
		r.figure("type_back_from_"+strings.ToLower(string(other))+"_answered_after", time.Since(begun), "s")
	}
	r.remove("typed")
}

// checkAgain: a Service that was deleted and is made again under its name is served.
func checkAgain(r *rig) {
	r.create(loadBalancer("again"))
	address := r.published("again")
	r.answered(tcp(address, 80))
	r.namesAnnouncer("again", address)
	first := r.blockOf(r.get("again"))
	r.remove("again")
	r.figure("released_after", r.removed("again"), "s")
	if slices.ContainsFunc(r.blocks(), func(b cluster.AccountBlock) bool { return b.ID == first.ID }) {
		r.Errorf("the Service is gone and its block %s is not", first.CIDR)
	}
	r.refused(tcp(address, 80))
	begun := time.Now()
	r.create(loadBalancer("again"))
	r.answered(tcp(r.published("again"), 80))
	r.figure("recreated_answered_after", time.Since(begun), "s")
	r.remove("again")
}

// namesAnnouncer waits until the Service names the server that answers for its address, where the mode has that, and no
// server where not.
func (r *rig) namesAnnouncer(name string, address netip.Addr) {
	r.Helper()
	r.until(answerLimit, "Service "+name+" names its announcer", func() (bool, string) {
		s := r.get(name)
		by := s.Annotations[contract.ServiceAnnouncedBy]
		since := s.Annotations[contract.ServiceAnnouncedSince]
		holder, err := r.holder(r.Context(), address)
		r.must("who holds "+address.String(), err)
		if !r.mode.names {
			return by == "" && since == "", by
		}
		return holder != "" && by == holder && since != "",
			fmt.Sprintf("%q since %q, the gateway knows %q", by, since, holder)
	})
}

// checkNeighbours: another cluster with a controller, an API client and a server of its own uses the same account and
// the same public network. Services of the same name have different blocks, and no controller changes those of the
// other: the simulator reports a client that changes what belongs to another one.
func checkNeighbours(r *rig) {
	other := r.neighbour()
	defer func() {
		if err := other.Stop(); err != nil {
			r.Error(err)
		}
	}()
	services := other.Kube.CoreV1().Services(cluster.Namespace)
	for _, s := range []*corev1.Service{
		loadBalancer("twin"), loadBalancer("thief", annotated(contract.ServiceIPBlockID, ownBlockID)),
	} {
		_, err := services.Create(r.Context(), s, metav1.CreateOptions{})
		r.must("create Service "+s.Name+" of the other cluster", err)
	}
	r.create(loadBalancer("twin"))
	ours := r.published("twin")
	theirs := publishedIn(r, other.Kube, "twin", netip.Addr.IsValid)
	s, err := services.Get(r.Context(), "twin", metav1.GetOptions{})
	r.must("read the other cluster's Service", err)
	block := r.blockOf(s)
	r.claim(neighbourCCM, "twin", block, theirs)
	if ours == theirs || block.ID == r.blockOf(r.get("twin")).ID {
		r.Errorf("two clusters share %s, %s of block %s", ours, theirs, block.CIDR)
	}
	r.answered(tcp(ours, 80))
	r.refusedIn(other, "thief")
	r.remove("twin")
	r.removed("twin")
	if !slices.ContainsFunc(r.blocks(), func(b cluster.AccountBlock) bool {
		return b.ID == block.ID &&
			b.Status == block.Status
	}) {
		r.Errorf("block %s of the other cluster went with our Service", block.CIDR)
	}
	r.withdraw(neighbourCCM, "twin")
	for _, name := range []string{"twin", "thief"} {
		r.must("delete Service "+name, services.Delete(r.Context(), name, metav1.DeleteOptions{}))
		goneFrom(r, other.Kube, name)
	}
	r.noOrphans(other)
}

// neighbour is another cluster in the account. Its Node has no agent, as where announcing is left to others.
func (r *rig) neighbour() *cluster.Cluster {
	r.Helper()
	dir := filepath.Join(r.dir, "neighbour")
	r.must("directory of the other cluster", os.Mkdir(dir, 0o700))
	other, err := cluster.New(cluster.Options{
		Dir: dir, Scale: scale, Servers: 1, Client: pnapsim.ClientSeed{ID: neighbourCCM, Secret: neighbourSecret},
	})
	r.must("prepare the other cluster", err)
	other.ShareAccount(r.Cluster)
	other.Servers = []cluster.Server{{Server: wire.Server{Name: neighbour, ID: neighbourID,
		Private: netip.MustParsePrefix("10.0.0.99/24")}}}
	r.must("start the other control plane", other.StartControlPlane(r.Context()))
	r.must("register the other cluster's Node", other.RegisterNodes(r.Context()))
	r.must("start the other controller", other.StartController(r.Context()))
	return other
}

// refusedIn waits until a cluster refuses a Service for good, with nothing published.
func (r *rig) refusedIn(c *cluster.Cluster, name string) {
	r.Helper()
	r.until(publishLimit, "Service "+name+" is refused", func() (bool, string) {
		s, err := c.Kube.CoreV1().Services(cluster.Namespace).Get(r.Context(), name, metav1.GetOptions{})
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
func (r *rig) noOrphans(other *cluster.Cluster) {
	r.Helper()
	for _, c := range []*cluster.Cluster{r.Cluster, other} {
		events, err := c.Kube.CoreV1().Events(metav1.NamespaceAll).List(r.Context(), metav1.ListOptions{})
		r.must("list events", err)
		for _, e := range events.Items {
			if strings.HasPrefix(e.Reason, "Orphan") {
				r.Errorf("%s: %s", e.Reason, e.Message)
			}
		}
	}
}
