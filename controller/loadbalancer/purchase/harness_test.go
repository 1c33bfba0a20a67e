package purchase_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
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
	w := &world{t: t, clock: pnapsim.NewManualClock(simtest.Start()), object: newObject()}
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

// service is the Service for which the tests buy.
var service = ipblock.Holder{Namespace: "shop", Name: "web", UID: "uid-1"}

// object is the IPBlock of the Service, on an API server that may fail.
type object struct {
	*client.IPBlocks
	store *kubefake.Store
	// before is called ahead of each write, and writes counts them.
	before  func()
	writes  int
	failure error
}

func newObject() *object {
	store := kubefake.NewStore()
	return &object{IPBlocks: store.IPBlocks(), store: store}
}

// records are what is stored.
func (o *object) records() ipblock.Records {
	list, err := o.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	var all ipblock.Records
	for i := range list.Items {
		if r, recorded := allocation.RecordOf(&list.Items[i]); recorded {
			all = append(all, r)
		}
	}
	return all
}

// touch is a change by someone else.
func (o *object) touch() {
	object, err := o.Get(context.Background(), v1beta1.ServicePrefix+service.UID, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o.overwrite()
		return
	}
	object.Labels = map[string]string{"touched": "true"}
	if _, err := o.IPBlocks.Update(context.Background(), object, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
}

// overwrite records an intent of someone else.
func (o *object) overwrite() {
	record := allocation.ForService(o.IPBlocks, v1beta1.DefaultNetwork, service, o.records())
	if _, err := record.Begin(context.Background(), simtest.Start(),
		28); err != nil {
		panic(err)
	}
}

func (o *object) remove() {
	if err := o.IPBlocks.Delete(context.Background(), v1beta1.ServicePrefix+service.UID,
		metav1.DeleteOptions{}); err != nil {
		panic(err)
	}
}

func (o *object) purchase() *ipblock.Purchase { return o.records().Of(service) }

func (o *object) record() *allocation.Object {
	return allocation.ForService(o, v1beta1.DefaultNetwork, service, o.records())
}

func (o *object) write(ctx context.Context) error {
	if o.before != nil {
		o.before()
	}
	o.writes++
	return cmp.Or(ctx.Err(), o.failure)
}

func (o *object) Create(ctx context.Context, b *v1beta1.IPBlock, how metav1.CreateOptions) (*v1beta1.IPBlock, error) {
	if err := o.write(ctx); err != nil {
		return nil, err
	}
	return o.IPBlocks.Create(ctx, b, how)
}

func (o *object) Update(ctx context.Context, b *v1beta1.IPBlock, how metav1.UpdateOptions) (*v1beta1.IPBlock, error) {
	if err := o.write(ctx); err != nil {
		return nil, err
	}
	return o.IPBlocks.Update(ctx, b, how)
}

func (o *object) UpdateStatus(ctx context.Context, b *v1beta1.IPBlock, how metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	if err := o.write(ctx); err != nil {
		return nil, err
	}
	return o.IPBlocks.UpdateStatus(ctx, b, how)
}

func (o *object) Delete(ctx context.Context, name string, how metav1.DeleteOptions) error {
	if err := o.write(ctx); err != nil {
		return err
	}
	return o.IPBlocks.Delete(ctx, name, how)
}
