package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	freeBlockID  = "6047127fed34ecc3ba8402d3" // not assigned
	usedBlockID  = "6047127fed34ecc3ba8402d4" // assigned
	bareServerID = "5fa54d1e91867c03a0a7b4a6" // not a member
)

// changeKinds are the methods of the client that change the account, called so that the change succeeds.
var changeKinds = map[string]func(context.Context, *pnap.Client) error{
	"BuyBlock": func(ctx context.Context, c *pnap.Client) error {
		_, err := c.BuyBlock(ctx, pnap.BlockRequest{Location: "ASH", Size: "/29"})
		return err
	},
	"SetBlockTags": func(ctx context.Context, c *pnap.Client) error {
		return c.SetBlockTags(ctx, freeBlockID, map[string]string{contract.TagCluster: "uid"})
	},
	"DeleteBlock": func(ctx context.Context, c *pnap.Client) error { return c.DeleteBlock(ctx, freeBlockID) },
	"AssignBlock": func(ctx context.Context, c *pnap.Client) error {
		return c.AssignBlock(ctx, simtest.NetworkID, freeBlockID)
	},
	"UnassignBlock": func(ctx context.Context, c *pnap.Client) error {
		return c.UnassignBlock(ctx, simtest.NetworkID, usedBlockID)
	},
	"EnsureTags": func(ctx context.Context, c *pnap.Client) error { return c.EnsureTags(ctx, "new") },
	"JoinNetwork": func(ctx context.Context, c *pnap.Client) error {
		return c.JoinNetwork(ctx, bareServerID, simtest.NetworkID,
			[]netip.Addr{netip.MustParseAddr("203.0.113.4")}, false)
	},
	"LeaveNetwork": func(ctx context.Context, c *pnap.Client) error {
		return c.LeaveNetwork(ctx, simtest.Server2ID, simtest.NetworkID)
	},
}

// The moments between the decision for a change and its arrival at which a leader is stopped.
const (
	never          = "never"
	beforeRequest  = "before the request"
	afterPauses    = "when every pause of the client is over"
	atToken        = "while a token is fetched"
	beforeFence    = "before the fence"
	behindFence    = "between the fence and the connection"
	atFailure      = "while a request fails that is repeated"
	atExpiredToken = "while a request fails that is repeated with another token"
	atOtherHolder  = "when it reads another holder"
)

var moments = []string{beforeRequest, afterPauses, atToken, beforeFence, behindFence, atFailure, atExpiredToken,
	atOtherHolder}

// stoppable is a leader that is stopped at one moment, and continues when another replica may lead.
type stoppable struct {
	*candidate
	client      *pnap.Client
	moment      string
	stopped     atomic.Bool
	early, late atomic.Int32 // changes that arrived before it was stopped, and after
	ahead       atomic.Int64 // what its clock gained: no pause is left when it continues
}

// newStoppable returns a leader that has just renewed its Lease, and an account that allows every change.
func newStoppable(t *testing.T, moment string) *stoppable {
	t.Helper()
	s := &stoppable{candidate: newCandidate(t), moment: moment}
	s.renew("ccm")
	api := httptest.NewServer(s.before(allowAll(t).Handler()))
	t.Cleanup(api.Close)
	client, err := pnap.New(pnap.Config{
		BaseURL: api.URL, TokenURL: api.URL + pnap.TokenPath, Wrap: s.wrap, Fence: s.fence,
		Credentials: func() (string, string, error) {
			s.reach(afterPauses)
			return simtest.ClientID, simtest.ClientSecret, nil
		},
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	return s
}

// allowAll returns an account in which each of changeKinds succeeds.
func allowAll(t *testing.T) *pnapsim.Sim {
	t.Helper()
	account := simtest.Account()
	account.Clients[0].Judged = false
	account.Tags = []pnapsim.TagSeed{{Name: contract.TagCluster}}
	account.Blocks = append(account.Blocks,
		pnapsim.BlockSeed{ID: freeBlockID, Location: "ASH", CIDR: "203.0.113.64/29"},
		pnapsim.BlockSeed{ID: usedBlockID, Location: "ASH", CIDR: "203.0.113.72/29", Network: simtest.NetworkID})
	account.Servers = append(account.Servers, pnapsim.ServerSeed{ID: bareServerID, Hostname: "node-3", Location: "ASH",
		NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.13"}})
	sim, _ := simtest.Unjudged(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	return sim
}

// reach stops the leader once if the moment is its own: when it continues, its last renewal is an hour ago by the wall
// clock, as after a machine was suspended, or another replica holds the Lease.
func (s *stoppable) reach(moment string) {
	if moment != s.moment || s.stopped.Swap(true) {
		return
	}
	if moment == atOtherHolder {
		s.read(leasesPath+"/ccm", "other")
		return
	}
	s.ahead.Store(int64(time.Hour))
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, at := range s.renewed {
		s.renewed[key] = instant{monotonic: at.monotonic, wall: at.wall.Add(-time.Hour)}
	}
}

// wrap is the transport of the process, with the moment before it.
func (s *stoppable) wrap(base http.RoundTripper) http.RoundTripper {
	wrapped := s.WrapCloud(base)
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if isChange(request.Method) {
			s.reach(beforeFence)
		}
		return wrapped.RoundTrip(request)
	})
}

// fence is the fence of the process, with the moment behind it.
func (s *stoppable) fence() error {
	err := s.MayChange()
	s.reach(behindFence)
	return err
}

// before counts the changes that arrive, and lets the first fail if the moment needs it.
func (s *stoppable) before(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pnap.TokenPath {
			s.reach(atToken) //nolint:contextcheck // what it does belongs to the test, not to the request
		} else if isChange(r.Method) {
			if s.stopped.Load() {
				s.late.Add(1)
			} else if s.early.Add(1); s.fail(w) { //nolint:contextcheck // as above
				return
			}
		}
		api.ServeHTTP(w, r)
	})
}

func (s *stoppable) fail(w http.ResponseWriter) bool {
	status := map[string]int{
		atFailure: http.StatusServiceUnavailable, atExpiredToken: http.StatusUnauthorized,
	}[s.moment]
	if status == 0 {
		return false
	}
	s.reach(s.moment)
	w.WriteHeader(status)
	return true
}

// A leader that is stopped at any moment between a decision and its request, for each kind of change, changes nothing
// after it continues and its Lease was not renewed within the deadline.
//
//proves:known-bugs/deposed-leader
func TestFenceOfEachChange(t *testing.T) {
	var fenced, late atomic.Int32
	t.Run("all", func(t *testing.T) {
		for kind, call := range changeKinds {
			t.Run(kind+" "+never, func(t *testing.T) {
				s := newStoppable(t, never)
				if err := call(t.Context(), s.client); err != nil || s.early.Load() != 1 {
					t.Errorf("%d changes arrived, %v; want one that succeeds", s.early.Load(), err)
				}
			})
			for _, moment := range moments {
				t.Run(kind+" "+moment, func(t *testing.T) {
					t.Parallel()
					s := newStoppable(t, moment)
					s.tryTwice(func() error { return call(t.Context(), s.client) })
					fenced.Add(1)
					late.Add(s.late.Load())
				})
			}
		}
	})
	// a test's output takes everything
	_, _ = fmt.Fprintf(t.Output(), "figure fenced_changes %d requests\nfigure changes_by_deposed_leader %d requests\n",
		fenced.Load(), late.Load())
}

// tryTwice calls the change as a loop would that failed: the second time it is rejected before anything is sent.
func (s *stoppable) tryTwice(call func() error) {
	s.t.Helper()
	s.reach(beforeRequest)
	s.reach(atOtherHolder)
	first := call()
	s.ahead.Add(int64(time.Hour))
	second := call()
	var fence *FencedError
	if first == nil || !errors.As(second, &fence) || !pnap.IsRefused(second) {
		s.t.Errorf("got %v, then %v; want two errors, the second of the fence", first, second)
	}
	if s.late.Load() != 0 || !s.stopped.Load() {
		s.t.Errorf("stopped %t, then %d changes arrived", s.stopped.Load(), s.late.Load())
	}
	if ended := s.moment == atOtherHolder; ended != slices.Equal(s.lost, []string{"other"}) {
		s.t.Errorf("the process ended because of %q", s.lost)
	}
}

// changeKinds holds every method of the client that sends a change: all are called with arguments that mean nothing.
func TestEachChangeIsListed(t *testing.T) {
	found := map[string]bool{}
	client := reflect.TypeFor[*pnap.Client]()
	for i := range client.NumMethod() {
		s := newStoppable(t, never)
		method := reflect.ValueOf(s.client).Method(i)
		method.Call(anyArguments(t, method.Type()))
		if s.early.Load() > 0 {
			found[client.Method(i).Name] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(changeKinds)), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("methods that change the account (-listed, +found):\n%s", diff)
	}
}

// anyArguments returns arguments of a method, one for a variadic parameter.
func anyArguments(t *testing.T, method reflect.Type) []reflect.Value {
	t.Helper()
	var arguments []reflect.Value
	for i := range method.NumIn() {
		kind := method.In(i)
		if method.IsVariadic() && i == method.NumIn()-1 {
			kind = kind.Elem()
		}
		switch argument := reflect.New(kind).Elem(); {
		case kind == reflect.TypeFor[context.Context]():
			arguments = append(arguments, reflect.ValueOf(t.Context()))
		case kind.Kind() == reflect.String:
			argument.SetString("a")
			fallthrough
		default:
			arguments = append(arguments, argument)
		}
	}
	return arguments
}
