package orphans

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("n", 63)
	f := facts{
		cluster: "c", now: now, services: map[string]bool{"shop_web": true, contract.ServiceTag(long, long): true},
		used: map[string]bool{"held": true, "empty": false},
		purchases: []recorded{
			{Purchase: ipblock.Purchase{Nonce: "00112233445566aa", BlockID: "fresh", Time: now.Add(-9 * time.Minute)}},
			{Purchase: ipblock.Purchase{Nonce: "00112233445566bb", BlockID: "stale", Time: now.Add(-11 * time.Minute)}},
		},
	}
	for name, tc := range map[string]struct {
		block network.Block
		want  blockState
	}{
		"its Service exists": {network.Block{Tags: map[string]string{"service": "shop_web"}}, inUse},
		"its Service does not": {network.Block{Tags: map[string]string{"service": "shop_other"}},
			orphan},
		"a name that is cut": {network.Block{Tags: map[string]string{"service": contract.ServiceTag(
			long, long)}}, inUse},
		"another name that is cut": {network.Block{Tags: map[string]string{"service": contract.ServiceTag(
			long, long+"x")}}, orphan},
		"an empty tag": {network.Block{Tags: map[string]string{"service": ""}}, unclear},
		"v1, its Service exists": {network.Block{Tags: map[string]string{"serviceNamespace": "shop",
			"serviceName": "web"}}, inUse},
		"v1, its Service does not": {network.Block{Tags: map[string]string{"serviceNamespace": "shop",
			"serviceName": "x"}}, orphan},
		"half of v1's tags": {network.Block{Tags: map[string]string{"serviceName": "web"}}, unclear},
		"the other half": {network.Block{Tags: map[string]string{"serviceNamespace": "shop"}},
			unclear},
		"today's tag goes before v1's": {network.Block{Tags: map[string]string{"service": "shop_x",
			"serviceNamespace": "shop", "serviceName": "web"}}, orphan},
		"retained": {network.Block{Tags: map[string]string{"service": "shop_x",
			"retain": "true"}}, retained},
		"retained for a Service that exists": {network.Block{Tags: map[string]string{"service": "shop_web",
			"retain": "true"}}, inUse},
		"retain=false": {network.Block{Tags: map[string]string{"service": "shop_x",
			"retain": "false"}}, orphan},
		"a Service goes before a pool": {network.Block{ID: "held",
			Tags: map[string]string{"service": "shop_x", "pool": "default"}}, orphan},
		"a pool's in use": {network.Block{ID: "held", Tags: map[string]string{"pool": "default"}},
			inUse},
		"a pool's with an empty ledger": {network.Block{ID: "empty", Tags: map[string]string{"pool": "default"}},
			empty},
		"a pool's without a ledger": {network.Block{ID: "x", Tags: map[string]string{"pool": "default"}},
			empty},
		"the nodes' in use": {network.Block{ID: "held", Tags: map[string]string{"nodes": "c"}},
			inUse},
		"the nodes' that no node uses": {network.Block{ID: "x", Tags: map[string]string{"nodes": "c"}}, empty},
		"the nodes' of another cluster": {network.Block{ID: "held", Tags: map[string]string{"nodes": "d"}},
			unclear},
		"no purpose": {network.Block{ID: "x"}, unclear},
		"a leftover of v1": {network.Block{ID: "x", Tags: map[string]string{"delete": "true"}},
			leftover},
		"a leftover that is to be retained": {network.Block{ID: "x",
			Tags: map[string]string{"delete": "true", "retain": "true"}}, unclear},
		"delete=false": {network.Block{ID: "x", Tags: map[string]string{"delete": "false"}},
			unclear},
		"a purpose with an empty value counts": {network.Block{ID: "x",
			Tags: map[string]string{"delete": "true", "service": ""}}, unclear},
		"bought a moment ago, by its ID": {network.Block{ID: "fresh",
			Tags: map[string]string{"service": "shop_x"}}, inUse},
		"bought a moment ago, by its nonce": {network.Block{ID: "x", Description: "for x, purchase 00112233445566aa",
			Tags: map[string]string{"service": "shop_x"}}, inUse},
		"an old purchase by its ID": {network.Block{ID: "stale",
			Tags: map[string]string{"service": "shop_x"}}, unclear},
		"an old purchase by its nonce": {network.Block{ID: "x", Description: "purchase 00112233445566bb",
			Tags: map[string]string{"delete": "true"}}, unclear},
		"a description that ends with no nonce": {network.Block{ID: "x", Description: "nonce",
			Tags: map[string]string{"service": "shop_x"}}, orphan},
		"a purchase of the past for a live name": {network.Block{ID: "stale",
			Tags: map[string]string{"service": "shop_web"}}, inUse},
	} {
		tc.block.Status = network.Unassigned
		if got := classify(tc.block, f); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	f.nodeBlocks = []string{"x"}
	for id, want := range map[string]blockState{"x": inUse, "y": empty, "held": inUse} {
		got := classify(network.Block{ID: id, Status: network.Assigned, Tags: map[string]string{"nodes": "c"}}, f)
		if got != want {
			t.Errorf("block %s of the nodes while memberships are managed: %s, want %s", id, got, want)
		}
	}
}

// Whatever tags blocks carry: what may be deleted is owned by no Service that is looked after, by no pool and
// by no node, and is neither retained nor brought.
func TestWhatIsCollectableIsNobodys(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	collectable := map[blockState]int{}
	for range seeds.Count(t, 20_000) {
		block := network.Block{ID: pick("a", "b"), BringYourOwn: random.IntN(8) == 0, Tags: map[string]string{},
			SystemManaged: random.IntN(8) == 0, Part: random.IntN(8) == 0,
			Status: network.BlockStatus(pick("assigned", "unassigned", "error assigning", "subnetted", "resting"))}
		for name, values := range map[string][]string{
			contract.TagUsage:   {contract.TagUsageAuto, contract.TagUsageAuto, contract.TagUsageAuto, "other"},
			contract.TagCluster: {"c", "c", "c", "d"},
			contract.TagService: {"", "n_a", "n_b"}, contract.TagServiceNamespace: {"", "n"},
			contract.TagServiceName: {"", "a", "b"},
			contract.TagPool:        {"", "default"}, contract.TagNodes: {"", "c", "d"},
			contract.TagRetain: {"", "true", "false"}, contract.TagDelete: {"", "true", "false"},
		} {
			if value := pick(values...); value != "" &&
				(name == contract.TagUsage || name == contract.TagCluster || random.IntN(2) == 0) {
				block.Tags[name] = value
			}
		}
		f := facts{cluster: "c", services: map[string]bool{}, uids: map[string]bool{},
			used: map[string]bool{"a": random.IntN(2) == 0}}
		var services []*corev1.Service
		for _, name := range []string{"a", "b"} {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
			if random.IntN(2) == 0 {
				service.Spec.Type = corev1.ServiceTypeLoadBalancer
				services = append(services, service)
			}
			f.add(service)
		}
		if !network.OfCluster(block, "c") {
			continue // never classified, see Look
		}
		s := classify(block, f)
		if s != orphan && s != leftover {
			continue
		}
		collectable[s]++
		owners := []network.Owner{{Cluster: "c", Nodes: "default"}, {Cluster: "c", Pool: v1beta1.DefaultNetwork}}
		for _, service := range services {
			owners = append(owners, network.Owner{Cluster: "c", Namespace: service.Namespace, Name: service.Name})
		}
		for _, owner := range owners {
			if owner.Owns(block) {
				t.Fatalf("a block of %s may be deleted: %v is %s", owner, block.Tags, s)
			}
		}
		if block.SystemManaged || block.Part || block.Status == "subnetted" || block.Status == "resting" {
			t.Fatalf("an untouchable block may be deleted: %+v is %s", block, s)
		}
		if network.Retained(block) {
			t.Fatalf("a retained block may be deleted: %v is %s", block.Tags, s)
		}
	}
	if collectable[orphan] < 100 || collectable[leftover] < 10 {
		t.Errorf("hardly anything was found collectable: %v", collectable)
	}
}

// TestPurchaseFromTheFuture: a purchase that is recorded with a time in the future explains its block no longer than
// one of now.
func TestPurchaseFromTheFuture(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	seen := purchase.NewSeen(func() time.Time { return now })
	b := network.Block{ID: "bought", Tags: map[string]string{contract.TagService: "shop_web"}}
	for _, block := range []string{"", "bought"} {
		recorded := ipblock.Records{{Purchase: ipblock.Purchase{Nonce: "00112233445566aa", Time: now.AddDate(73, 0, 0),
			BlockID: block}}}
		b.Description = "purchase 00112233445566aa"
		fresh := func() bool {
			f := facts{cluster: "c", now: now, services: map[string]bool{}}
			f.record(seen.BoundedAll(recorded))
			_, fresh := f.purchased(b)
			return fresh
		}
		if !fresh() {
			t.Errorf("%q: not fresh at first", block)
		}
		now = now.Add(purchaseFresh)
		if fresh() {
			t.Errorf("%q: still fresh after %s", block, purchaseFresh)
		}
	}
}

// TestPurchaseForAServiceThatIsGone: an old purchase for a Service that does not need it any more keeps no block.
func TestPurchaseForAServiceThatIsGone(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := network.Block{ID: "bought", Status: network.Unassigned,
		Tags: map[string]string{contract.TagService: "shop_web"}}
	for name, test := range map[string]struct {
		age  time.Duration
		uids map[string]bool
		want blockState
	}{
		"gone":                 {age: time.Hour, want: orphan},
		"gone a moment after":  {age: time.Minute, want: inUse},
		"there, of other name": {age: time.Hour, uids: map[string]bool{"u1": true}, want: unclear},
	} {
		f := facts{cluster: "c", now: now, services: map[string]bool{}, uids: test.uids}
		f.record(ipblock.Records{{Service: ipblock.Holder{Namespace: "shop", Name: "web", UID: "u1"},
			Purchase: ipblock.Purchase{Nonce: "n", Time: now.Add(-test.age), BlockID: "bought"}}})
		if got := classify(b, f); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
