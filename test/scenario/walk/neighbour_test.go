package walk

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// The other cluster on the public network, in some of the walks.
const (
	neighbourUID    = "3f9d3a52-6f0e-4a8b-9a4e-5be0a1b7c2d3"
	neighbourClient = "neighbour-client"
	neighbourSecret = "vB6xLd9Tq2Rm5Zs8"
	neighbourServer = 100
)

// clientSeed is the API client of a cluster with an ID, which may change its own blocks only.
func clientSeed(k keys, uid string) pnapsim.ClientSeed {
	return pnapsim.ClientSeed{ID: k.id, Secret: k.secret, Judged: true, OwnershipTags: map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: uid,
	}}
}

// addNeighbour starts another cluster on the network.
func (w *world) addNeighbour(uid string) *world {
	neighbour := newCluster()
	neighbour.t = w.t
	neighbour.seed = w.seed
	neighbour.random = w.random
	neighbour.sim = w.sim
	neighbour.handler = w.handler
	neighbour.count = w.count
	neighbour.uid = uid
	neighbour.client = neighbourClient
	neighbour.own = keys{neighbourClient, neighbourSecret}
	neighbour.latencies = w.latencies
	neighbour.collect = w.collect
	neighbour.parent = w
	neighbour.keys = neighbour.own
	neighbour.found()
	neighbour.register(neighbourServer)
	neighbour.process = neighbour.live(0)
	w.neighbour = neighbour
	return neighbour
}

// found makes the namespaces of a cluster.
func (w *world) found() {
	w.store.Admit = w.admit
	kube, err := kubefake.Connect(w.store.Line())
	if err != nil {
		w.t.Fatal(err)
	}
	w.kube = kube
	w.ipBlocks = w.store.IPBlocks()
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(w.uid)}})
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if w.parent == nil {
		w.bring(broughtObject, broughtID, v1beta1.PurposeShared)
	}
	w.bring("of-the-nodes", nodeBlockID, v1beta1.PurposeNodes)
}

// clusters are those of the walk.
func (w *world) clusters() []*world {
	if w.neighbour == nil {
		return []*world{w}
	}
	return []*world{w, w.neighbour}
}

// neighbourActs lets the users of the other cluster create or delete a Service.
func (w *world) neighbourActs() {
	if w.neighbour == nil {
		return
	}
	w.inject(classSecondCluster)
	if w.random.IntN(3) == 0 {
		w.neighbour.deleteService()
	} else {
		w.neighbour.createService()
	}
}

// broughtObject is the name of the IPBlock with which the account's owner gives a block to the cluster.
const broughtObject = "of-the-owner"

// bring applies an IPBlock from now on whenever it is missing, as the programs do that apply what is in a repository.
func (w *world) bring(name, id string, purpose v1beta1.Purpose) {
	w.bringIn(v1beta1.DefaultNetwork, name, id, purpose)
}

// bringIn does the same for a public network.
func (w *world) bringIn(network, name, id string, purpose v1beta1.Purpose) {
	_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: purpose, BlockID: id,
			Attachment: v1beta1.Attachment{Name: network}}},
		metav1.CreateOptions{})
	if err == nil {
		w.did("IPBlock %s is applied", name)
	}
	time.AfterFunc(time.Minute, func() { w.bringIn(network, name, id, purpose) })
}

// TestTwoClustersWithOneID: what was restored from a snapshot into a second cluster has the ID of the first, and all
// tags say that the blocks of one are the other's too. Without --collect-orphans neither takes a block away, and each
// reports those of the other.
func TestTwoClustersWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, &counts{}, simtest.Specs(t))
		w.collect = false
		w.manages = false
		w.register(0)
		w.process = w.live(0)
		other := w.addNeighbour(clusterUID)
		owners := map[*world]string{w: "a", other: "b"}
		for cluster, name := range owners {
			cluster.createWith(name, nil)
		}
		time.Sleep(3 * w.patience())
		synctest.Wait()
		addresses := map[string]bool{}
		for cluster, name := range owners {
			service := cluster.services()[0]
			if address := addressOf(&service); address == "" || !w.isServed(address) || addresses[address] {
				t.Errorf("%s has address %q, want one of its own in an assigned block", name, address)
			} else {
				addresses[address] = true
			}
		}
		for _, b := range w.ours() {
			for cluster, name := range owners {
				isOwn := b.tags[contract.TagService] == contract.ServiceTag(namespace, name)
				if cluster.events.reports(b.id) == isOwn {
					t.Errorf("the cluster of %s reports %s: %t", name, b, !isOwn)
				}
			}
		}
		w.end()
		if left := w.ours(); len(left) > 0 {
			t.Errorf("blocks are left: %v", left)
		}
		for cluster := range owners {
			cluster.process.bury()
		}
		time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
	})
}
