package account_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

var _ account.Cloud = (*pnap.Client)(nil)

// cloud is a slow API whose list of blocks grows by one block with each change.
type cloud struct {
	takes time.Duration

	mu    sync.Mutex
	calls int
	held  int
	err   error
}

func (c *cloud) Blocks(ctx context.Context, tags map[string]string) ([]network.Block, error) {
	if len(tags) != 0 {
		return nil, errors.New("the list is filtered")
	}
	held, err := c.ask()
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	return make([]network.Block, held), err
}

func (c *cloud) Network(ctx context.Context, id string) (network.Network, error) {
	held, err := c.ask()
	if err := c.pass(ctx); err != nil {
		return network.Network{}, err
	}
	return network.Network{ID: id, VLAN: held}, err
}

func (c *cloud) Block(ctx context.Context, id string) (network.Block, error) {
	held, err := c.ask()
	if err := c.pass(ctx); err != nil {
		return network.Block{}, err
	}
	return network.Block{ID: id, Description: strconv.Itoa(held)}, err
}

func (c *cloud) TagAssignments(ctx context.Context, _ string) (map[string]string, error) {
	held, err := c.ask()
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	return map[string]string{"b1": strconv.Itoa(held)}, err
}

func (c *cloud) ask() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return c.held, c.err
}

func (c *cloud) pass(ctx context.Context) error {
	select {
	case <-time.After(c.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func (c *cloud) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
}

func (c *cloud) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// look is one way to read the account; it returns the number of changes that the answer shows.
type look func(ctx context.Context, a *account.Account, after time.Time) (int, error)

var looks = map[string]look{
	"blocks": func(ctx context.Context, a *account.Account, after time.Time) (int, error) {
		listing, err := a.Blocks(ctx, after)
		return len(listing.Blocks), err
	},
	"network": func(ctx context.Context, a *account.Account, after time.Time) (int, error) {
		network, err := a.Network(ctx, "n1", after)
		return network.VLAN, err
	},
}

// inBubble runs a test for each look, in a synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, c *cloud, a *account.Account, ask look)) {
	t.Helper()
	for name, ask := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cloud{takes: time.Second}
				test(t, c, account.New(account.Config{Cloud: c}), ask)
			})
		})
	}
}

func wantCalls(t *testing.T, c *cloud, want int) {
	t.Helper()
	if got := c.count(); got != want {
		t.Errorf("%d requests, want %d", got, want)
	}
}

func mustSee(t *testing.T, ask look, a *account.Account, after time.Time, want int) {
	t.Helper()
	if got, err := ask(t.Context(), a, after); err != nil || got != want {
		t.Errorf("saw %d changes, %v; want %d", got, err, want)
	}
}

func TestOneRequestServesAll(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() { mustSee(t, ask, a, time.Time{}, 0) })
		}
		all.Wait()
		wantCalls(t, c, 1)
		time.Sleep(account.DefaultWindow - 2*time.Second)
		mustSee(t, ask, a, time.Time{}, 0)
		wantCalls(t, c, 1)
		time.Sleep(time.Second)
		mustSee(t, ask, a, time.Time{}, 0)
		wantCalls(t, c, 2)
	})
}

// TestSteadyCallsPerMinute: there are two requests a minute, however often the account is read.
func TestSteadyCallsPerMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			mustSee(t, ask, a, time.Time{}, 0)
		}
		if got := c.count(); got > 20 {
			t.Errorf("%d requests in ten minutes", got)
		}
	})
}

// TestSlowerThanTheWindow: an API that is slower than the window gets one request for each read.
func TestSlowerThanTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		c.takes = 2 * account.DefaultWindow
		mustSee(t, ask, a, time.Time{}, 0)
		wantCalls(t, c, 1)
	})
}

func TestAskedAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		began := time.Now()
		mustSee(t, ask, a, time.Time{}, 0)
		mustSee(t, ask, a, began, 0)
		wantCalls(t, c, 1)
		c.change()
		mustSee(t, ask, a, began.Add(time.Nanosecond), 1)
		wantCalls(t, c, 2)
		mustSee(t, ask, a, time.Time{}, 1)
		wantCalls(t, c, 2)
	})
}

// TestLaterThanTheRequestInProgress: callers that need newer data than a request in progress wait for the next request,
// which serves all of them.
func TestLaterThanTheRequestInProgress(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		var all sync.WaitGroup
		all.Go(func() { mustSee(t, ask, a, time.Time{}, 0) })
		time.Sleep(time.Second / 2)
		c.change()
		now := time.Now()
		for range 10 {
			all.Go(func() { mustSee(t, ask, a, now, 1) })
		}
		all.Wait()
		wantCalls(t, c, 2)
	})
}

func TestChangedEndsFreshness(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		now := time.Now()
		mustSee(t, ask, a, time.Time{}, 0)
		c.change()
		a.Invalidate()
		mustSee(t, ask, a, now, 1)
		wantCalls(t, c, 2)
	})
}

// TestChangedWhileARequestIsInProgress: the answer of that request may lack the change.
func TestChangedWhileARequestIsInProgress(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		var all sync.WaitGroup
		all.Go(func() { mustSee(t, ask, a, time.Time{}, 1) })
		synctest.Wait()
		c.change()
		a.Invalidate()
		all.Wait()
		wantCalls(t, c, 2)
	})
}

//proves:known-bugs/failing-api-storm
func TestFailureAnswersForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		broken := errors.New("broken")
		mustSee(t, ask, a, time.Time{}, 0)
		c.fail(broken)
		a.Invalidate()
		for range 30 {
			if _, err := ask(t.Context(), a, time.Now()); !errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		wantCalls(t, c, 2)
		c.fail(nil)
		time.Sleep(3 * time.Second)
		mustSee(t, ask, a, time.Time{}, 0)
		wantCalls(t, c, 3)
	})
}

func TestWhoGivesUpEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cloud, a *account.Account, ask look) {
		first, giveUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer giveUp()
		var all sync.WaitGroup
		all.Go(func() {
			began := time.Now()
			if _, err := ask(first, a, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("gave up after %s", took)
			}
		})
		synctest.Wait()
		all.Go(func() { mustSee(t, ask, a, time.Time{}, 0) })
		all.Wait()
		wantCalls(t, c, 1)
	})
}

func TestNetworksAreReadEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		a := account.New(account.Config{Cloud: c})
		for range 3 {
			for _, id := range []string{"n1", "n2"} {
				if network, err := a.Network(t.Context(), id, time.Time{}); err != nil || network.ID != id {
					t.Errorf("asked for %s, got %s, %v", id, network.ID, err)
				}
			}
		}
		wantCalls(t, c, 2)
	})
}

// TestErrorsOfTheAPIPassThrough: callers distinguish inaccessible objects from failed reads.
func TestErrorsOfTheAPIPassThrough(t *testing.T) {
	c := &cloud{err: &pnap.Error{Op: "get public network", StatusCode: 404}}
	_, err := account.New(account.Config{Cloud: c}).Network(t.Context(), "n1", time.Time{})
	if !pnap.IsInaccessible(err) || !strings.Contains(err.Error(), "public network n1") {
		t.Errorf("error %v", err)
	}
}

// TestReview: a failure ends what has gone on since the first success, and the last success stays known.
func TestReview(t *testing.T) {
	a := account.New(account.Config{Cloud: &cloud{}})
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, step := range []struct {
		read time.Time
		want account.Review
	}{
		{time.Time{}, account.Review{}},
		{at(1), account.Review{At: at(1), Since: at(1)}},
		{at(2), account.Review{At: at(2), Since: at(1)}},
		{time.Time{}, account.Review{At: at(2)}},
		{at(4), account.Review{At: at(4), Since: at(4)}},
	} {
		if a.Reviewed(step.read); a.LastReview() != step.want {
			t.Errorf("after %v: %+v, want %+v", step.read, a.LastReview(), step.want)
		}
	}
}

// TestTheLastReadingIsKnown: without a request, with the last answer and the failure that came after it.
func TestTheLastReadingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		a := account.New(account.Config{Cloud: c})
		last := func(asked bool, failed bool) {
			t.Helper()
			public, askedAt, err := a.LastNetwork("n1")
			if askedAt.IsZero() == asked || (err != nil) != failed || asked && public.ID != "n1" {
				t.Errorf("%s at %s: %v", public.ID, askedAt, err)
			}
		}
		read := func() { _, _ = a.Network(t.Context(), "n1", time.Now()) }
		last(false, false)
		c.err = &pnap.Error{StatusCode: 500}
		read()
		last(false, true)
		time.Sleep(time.Minute)
		c.err = nil
		read()
		last(true, false)
		time.Sleep(time.Minute)
		c.err = &pnap.Error{StatusCode: 404}
		read()
		last(true, true)
		wantCalls(t, c, 3)
	})
}

//proves:known-bugs/busy-network
func TestOneChangeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := account.New(account.Config{Cloud: &cloud{}})
		inside := 0
		most := 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				done, err := a.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				inside--
				mu.Unlock()
				done() // a second call does nothing
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d changes at a time", most)
		}
		done, err := a.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestMetricsReportTheAge(t *testing.T) {
	counted := account.NewMetrics()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(counted.All()...)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &cloud{}
	a := account.New(account.Config{Cloud: c, Metrics: counted, Now: func() time.Time { return noon }})
	for range 3 {
		if _, err := a.Blocks(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	c.fail(errors.New("broken"))
	if _, err := a.Network(t.Context(), "n1", time.Time{}); err == nil {
		t.Fatal("no error")
	}
	const want = `
# HELP phoenixnap_account_reads_total [ALPHA] How often the account was read, by object and result: hit (answered from the cache), fetched or failed.
# TYPE phoenixnap_account_reads_total counter
phoenixnap_account_reads_total{object="ip-blocks",result="fetched"} 1
phoenixnap_account_reads_total{object="ip-blocks",result="hit"} 2
phoenixnap_account_reads_total{object="public-network",result="failed"} 1
# HELP phoenixnap_account_timestamp_seconds [ALPHA] When the cached state of the account was requested, in seconds since 1970, by object: ip-blocks or public-network. Its age is the time since then.
# TYPE phoenixnap_account_timestamp_seconds gauge
phoenixnap_account_timestamp_seconds{object="ip-blocks"} 1.7723664e+09
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
