package purchase_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	cluster    = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"
	blocksPath = "/ips/v1/ip-blocks"
)

// world is a simulated account, a real client of it, a buyer and an object that has the record.
type world struct {
	t      *testing.T
	clock  *pnapsim.Clock
	sim    *pnapsim.Sim
	client *pnap.Client
	buyer  *purchase.Buyer
	object *object
}

func newWorld(t *testing.T, change ...func(*pnap.Config)) *world {
	t.Helper()
	w := &world{t: t, clock: pnapsim.NewManualClock(simtest.Start()), object: &object{}}
	sim, url := simtest.New(t, pnapsim.Config{Clock: w.clock}, simtest.Seed())
	config := pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath, Now: w.clock.Now, HTTPTimeout: time.Minute,
		Credentials: func() (string, string, error) { return simtest.ClientID, simtest.ClientSecret, nil },
	}
	for _, c := range change {
		c(&config)
	}
	client, err := pnap.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.sim = sim
	w.client = client
	w.restart(client)
	return w
}

// restart replaces the buyer by one that knows nothing.
func (w *world) restart(cloud purchase.Cloud) {
	w.buyer = purchase.New(purchase.Config{Cloud: cloud, Now: w.clock.Now})
}

// oldTags makes tags long ago: all that blocks carry, or those that are named.
func (w *world) oldTags(names ...string) {
	w.t.Helper()
	if names == nil {
		names = []string{
			contract.TagUsage, contract.TagCluster, contract.TagService, contract.TagPool, contract.TagNodes,
		}
	}
	if err := w.client.EnsureTags(w.t.Context(), names...); err != nil {
		w.t.Fatal(err)
	}
	w.clock.Advance(5 * time.Minute)
}

func order(owner network.Owner) purchase.Order {
	return purchase.Order{Owner: owner, Location: "ASH", LocationSource: "the option location", Subject: "uid-1"}
}

func (w *world) buy(o purchase.Order) (network.Block, error) {
	return w.buyer.Buy(testlog.Context(w.t), o, w.object.record())
}

func (w *world) wantPurchases(want int) {
	w.t.Helper()
	if got := w.sim.Money(simtest.AccountID).Purchases; got != want {
		w.t.Errorf("%d blocks were bought, want %d", got, want)
	}
}

// object is a Kubernetes object that has a purchase and knows compare-and-swap.
type object struct {
	mu       sync.Mutex
	version  int
	recorded *contract.Purchase
	// before is called ahead of each save.
	before  func()
	failure error
}

// touch is a change by someone else.
func (o *object) touch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
}

func (o *object) overwrite(p *contract.Purchase) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
	o.recorded = p
}

func (o *object) purchase() *contract.Purchase {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.recorded
}

func (o *object) record() *record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &record{object: o, version: o.version}
}

// record stands for one version of the object.
type record struct {
	object  *object
	version int
}

func (r *record) Load(context.Context) (*contract.Purchase, error) {
	r.object.mu.Lock()
	defer r.object.mu.Unlock()
	if r.object.failure != nil {
		return nil, r.object.failure
	}
	r.version = r.object.version
	return r.object.recorded, nil
}

func (r *record) Save(ctx context.Context, p *contract.Purchase) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.object.before != nil {
		r.object.before()
	}
	r.object.mu.Lock()
	defer r.object.mu.Unlock()
	if r.object.failure != nil {
		return r.object.failure
	}
	if r.version != r.object.version {
		return purchase.ErrOutdated
	}
	r.object.version++
	r.version = r.object.version
	r.object.recorded = nil
	if p != nil {
		saved := *p
		r.object.recorded = &saved
	}
	return nil
}
