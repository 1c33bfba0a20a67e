package orphans_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// meddling is an API during whose read of a block something happens once.
type meddling struct {
	orphans.Cloud
	meddle func()
}

func (m *meddling) Block(ctx context.Context, id string) (network.Block, error) {
	if meddle := m.meddle; meddle != nil {
		m.meddle = nil
		meddle()
	}
	return m.Cloud.Block(ctx, id)
}

// meddleNext has something happen during the next read of a block.
func (w *world) meddleNext(meddle func()) {
	w.t.Helper()
	api, ok := w.config.Cloud.(*meddling)
	if !ok {
		w.t.Fatalf("the API is a %T, see newMeddled", w.config.Cloud)
	}
	api.meddle = meddle
}

func newMeddled(t *testing.T, options ...option) *world {
	t.Helper()
	w := newWorld(t, options...)
	w.config.Cloud = &meddling{Cloud: w.config.Cloud}
	w.collector = orphans.New(w.config)
	return w
}

// What happens between the decision that an orphan is released and its release counts: the block, its tags and the
// Services are read again with the account locked.
func TestWhatHappensBeforeAReleaseCounts(t *testing.T) {
	unassigned := block(blockID, "203.0.113.8/29", "", ours(contract.TagService, "shop_web"))
	for name, seeded := range map[string]option{"unassignment": web, "deletion": unassigned} {
		for what, meddle := range map[string]func(*world) error{
			"its Service appears": func(w *world) error { w.service("web", true); return nil },
			"another cluster takes it over": func(w *world) error {
				tags := ours(contract.TagService, "shop_web")
				tags[contract.TagCluster] = otherCluster
				return w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: blockID, Tags: tags})
			},
			"a user retains it": func(w *world) error {
				tags := ours(contract.TagService, "shop_web")
				tags[contract.TagRetain] = contract.TagTrue
				return w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: blockID, Tags: tags})
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				w := newMeddled(t, seeded, collecting)
				w.pass(grace - time.Minute)
				happened := false
				w.meddleNext(func() {
					happened = true
					if err := meddle(w); err != nil {
						t.Fatal(err)
					}
				})
				w.pass(2 * grace)
				w.untouched()
				if !happened {
					t.Error("the block was not read again")
				}
			})
		}
	}
}

// wantNewList expects the next reader of the list to send a request.
func (w *world) wantNewList() {
	w.t.Helper()
	const list = "GET /ips/v1/ip-blocks"
	before := w.sim.Count(list)
	if _, err := w.config.Account.Blocks(w.t.Context(), time.Time{}); err != nil || w.sim.Count(list) == before {
		w.t.Errorf("a list from before the change is used, %v", err)
	}
}

// No decision follows from a list of before a change of the account, whoever made it.
func TestAChangeMakesListsOld(t *testing.T) {
	free := block(blockID, "203.0.113.8/29", "", ours(contract.TagService, "shop_web"))
	t.Run("its own", func(t *testing.T) {
		w := newMeddled(t, free, collecting)
		w.pass(grace - time.Minute)
		for w.writes() == 0 {
			w.clock.Advance(time.Minute)
			if _, err := w.lookOnce(); err != nil {
				t.Fatal(err)
			}
		}
		w.wantNewList()
	})
	t.Run("of another", func(t *testing.T) {
		w := newMeddled(t, free, collecting)
		w.pass(grace - time.Minute)
		gone := false
		w.meddleNext(func() {
			gone = true
			if err := w.client.DeleteBlock(t.Context(), blockID); err != nil {
				t.Fatal(err)
			}
		})
		for !gone {
			w.clock.Advance(time.Minute)
			if _, err := w.lookOnce(); err != nil {
				t.Fatal(err)
			}
		}
		w.wantNewList()
	})
}

// A dry run takes no credit for a block that someone else deletes.
func TestADryRunReportsNoDeletion(t *testing.T) {
	w := newWorld(t, block(blockID, "203.0.113.8/29", "", ours(contract.TagService, "shop_web")), collecting)
	account := w.client
	w.connect(true)
	w.pass(grace + 10*time.Minute)
	if w.count("DryRun") == 0 {
		t.Fatalf("heard %q", w.heard)
	}
	if err := account.DeleteBlock(t.Context(), blockID); err != nil {
		t.Fatal(err)
	}
	w.pass(10 * time.Minute)
	if n := w.count("was deleted"); n != 0 {
		t.Errorf("heard %q", w.heard)
	}
}

// Our finalizer keeps the block of a Service, whatever the Service has become: it has not been released yet.
func TestAServiceWithOurFinalizerKeepsItsBlock(t *testing.T) {
	foreign := "example.com/other"
	for name, change := range map[string]func(*corev1.Service){
		"another type":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
		"another class": func(s *corev1.Service) { s.Spec.LoadBalancerClass = &foreign },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, web, collecting)
			w.service("web", false, func(s *corev1.Service) {
				change(s)
				s.Finalizers = []string{contract.LoadBalancerFinalizer}
			})
			w.pass(3 * grace)
			w.untouched()
		})
	}
}

// failing is an API that refuses the first deletions of a block.
type failing struct {
	orphans.Cloud
	block string
	times int
	tried []string
}

func (f *failing) DeleteBlock(ctx context.Context, id string) error {
	f.tried = append(f.tried, id)
	if id == f.block && f.times > 0 {
		f.times--
		return errors.New("no answer")
	}
	return f.Cloud.DeleteBlock(ctx, id)
}

// Of several orphans the one suspected longest is released first, one that failed waits longer each time, and the
// others do not wait for it.
func TestTheOrderOfReleases(t *testing.T) {
	const second = "60473c2509268bc77fd06d41"
	w := newWorld(t, collecting,
		block(blockID, "203.0.113.8/29", "", ours(contract.TagService, "shop_web")),
		block(second, "203.0.113.16/29", "", ours(contract.TagService, "shop_api")))
	api := &failing{Cloud: w.config.Cloud, block: blockID, times: 3}
	w.config.Cloud = api
	w.collector = orphans.New(w.config)
	var at []time.Duration
	began := w.clock.Now()
	for end := began.Add(2 * grace); w.clock.Now().Before(end); {
		tried := len(api.tried)
		now := w.clock.Now()
		failure := w.look()
		if len(api.tried) > tried && api.tried[tried] == blockID {
			at = append(at, now.Sub(began))
			if (failure != nil) != (len(at) <= 3) {
				t.Errorf("attempt %d: %v", len(at), failure)
			}
		}
	}
	if len(api.tried) != 5 || api.tried[0] != blockID || api.tried[1] != second {
		t.Fatalf("tried %v, want the other one after the first failure", api.tried)
	}
	for i := 1; i < len(at); i++ {
		if pause := at[i] - at[i-1]; pause < time.Minute<<(i-1) {
			t.Errorf("attempt %d came after %v: %v", i, pause, at)
		}
	}
	w.gone(blockID)
	w.gone(second)
}

// What a person confirmed goes at once; the others still wait for a person.
func TestOnlyWhatIsConfirmedGoes(t *testing.T) {
	w := newWorld(t, dedicated(4)...)
	w.pass(10 * time.Minute)
	if w.held() != 4 || w.count("It is going to be deleted") != 0 {
		t.Fatalf("%d are held; heard %q", w.held(), w.heard)
	}
	w.confirm(blockNumber(0))
	w.pass(25 * time.Hour)
	if got := w.left(4); !slices.Equal(got, []int{1, 2, 3}) || w.held() != 3 {
		t.Errorf("blocks %v are left, %d are held", got, w.held())
	}
	if w.count("OrphanedIPBlock", "It is going to be deleted") != 0 {
		t.Errorf("heard %q", w.heard)
	}
}
