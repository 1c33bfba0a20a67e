package account_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// late is an API whose list of blocks lags behind.
type late struct {
	// listed is what the list shows, and blocks what there is.
	listed []network.Block
	blocks map[string]network.Block
	// index is the index of tags, which may contain deleted blocks.
	index map[string]map[string]string
	asked []string
	err   error
}

func (l *late) Blocks(context.Context, map[string]string) ([]network.Block, error) {
	return l.listed, nil
}

func (l *late) Network(context.Context, string) (network.Network, error) {
	return network.Network{}, &pnap.Error{Op: "get public network", StatusCode: 403}
}

func (l *late) Block(_ context.Context, id string) (network.Block, error) {
	l.asked = append(l.asked, id)
	if block, found := l.blocks[id]; found || l.err != nil {
		return block, l.err
	}
	return network.Block{}, &pnap.Error{Op: "get IP block", StatusCode: 403}
}

func (l *late) TagAssignments(_ context.Context, name string) (map[string]string, error) {
	l.asked = append(l.asked, name)
	return maps.Clone(l.index[name]), l.err
}

// of is a block of a cluster, for the nodes unless it is for something else.
func of(cluster, id string) network.Block {
	return network.Block{ID: id, Tags: network.Owner{Cluster: cluster, Nodes: "default"}.Tags()}
}

// TestFind: the list shows "old", which changed, "deleted", and "odd", which is in the index but cannot be read. It
// lacks "new", and "brought", which has no tags.
func TestFind(t *testing.T) {
	api := &late{
		listed: []network.Block{of("uid", "old"), of("uid", "deleted"), of("uid", "odd"), of("other", "foreign"),
			{ID: "untagged"}},
		blocks: map[string]network.Block{"old": {ID: "old", Status: network.Assigned, Tags: of("uid", "old").Tags},
			"new": of("uid", "new"), "brought": {ID: "brought"}, "retagged": {ID: "retagged"},
			"foreign": of("other", "foreign")},
		index: map[string]map[string]string{contract.TagCluster: {"old": "uid", "new": "uid", "odd": "uid",
			"gone": "uid", "retagged": "uid", "foreign": "other"}},
	}
	wanted := (network.Owner{Cluster: "uid", Nodes: "default"}).Owns
	enough := func([]network.Sighting) bool { return true }
	trusted := func(network.Block) bool { return true }
	for name, test := range map[string]struct {
		search        account.Search
		want, all     []string
		unlisted, ask []string
		unseen        []string
	}{
		"everything": {search: account.Search{Wanted: wanted},
			want:     []string{"old assigned", "odd hidden", "new"},
			all:      []string{"old", "odd", "new", "foreign", "untagged"},
			unlisted: []string{"new"}, ask: []string{"old", "deleted", "odd", "cluster", "gone", "new", "retagged"},
			unseen: []string{"gone", "retagged"}},
		"from the list": {search: account.Search{Wanted: wanted, Trusted: trusted, Enough: enough},
			want: []string{"old", "deleted", "odd"}, all: []string{"old", "deleted", "odd", "foreign", "untagged"}},
		"hidden blocks need the index": {search: account.Search{
			Wanted: func(b network.Block) bool { return b.ID == "deleted" },
			Enough: enough}, all: []string{"new", "old", "odd", "foreign", "untagged"}, unlisted: []string{"new"},
			ask: []string{"deleted", "cluster", "gone", "new", "retagged"}, unseen: []string{"gone", "retagged"}},
		"by their IDs": {search: account.Search{Wanted: func(network.Block) bool { return false }, Enough: enough,
			IDs: []string{"brought", "", "old", "brought", "none"}},
			want: []string{"old assigned", "brought"},
			all:  []string{"old", "brought", "deleted", "odd", "foreign", "untagged"},
			ask:  []string{"old", "brought", "none"}},
		"listed, never bought, not readable": {search: account.Search{Wanted: func(network.Block) bool { return false },
			IDs: []string{"untagged"}}, want: []string{"untagged hidden"}, unlisted: []string{"new"},
			all: []string{"untagged", "new", "old", "deleted", "odd", "foreign"},
			ask: []string{"untagged", "cluster", "gone", "new", "retagged"}, unseen: []string{"gone", "retagged"}},
		"in the index, recognised without its tags": {search: account.Search{
			Wanted: func(b network.Block) bool { return b.ID == "retagged" }}, want: []string{"retagged"},
			unlisted: []string{"new"}, all: []string{"retagged", "new", "old", "deleted", "odd", "foreign", "untagged"},
			ask: []string{"cluster", "gone", "new", "retagged"}, unseen: []string{"gone", "retagged"}},
	} {
		t.Run(name, func(t *testing.T) {
			api.asked = nil
			a := account.New(account.Config{Cloud: api})
			test.search.Cluster = "uid"
			test.search.After = time.Now()
			for range 2 { // the second time from the cache
				found, err := a.Find(t.Context(), test.search)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range found.Wanted {
					word := s.Block.ID
					if s.Hidden {
						word += " hidden"
					} else if s.Block.Status != "" {
						word += " " + string(s.Block.Status)
					}
					got = append(got, word)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("wanted ones: %q, want %q", got, test.want)
				}
				if got := idsOf(found.All()); !slices.Equal(got, test.all) {
					t.Errorf("all: %q, want %q", got, test.all)
				}
				if !slices.Equal(found.Unseen, test.unseen) {
					t.Errorf("unseen: %q, want %q", found.Unseen, test.unseen)
				}
				if got := idsOf(found.Unlisted); !slices.Equal(got, test.unlisted) {
					t.Errorf("unlisted: %q, want %q", got, test.unlisted)
				}
			}
			if !slices.Equal(api.asked, test.ask) {
				t.Errorf("asked %q, want %q", api.asked, test.ask)
			}
			a.Invalidate()
			if _, err := a.Find(t.Context(), test.search); err != nil || len(api.asked) != 2*len(test.ask) {
				t.Errorf("asked %q after a change, %v", api.asked, err)
			}
		})
	}
}

func idsOf(blocks []network.Block) []string {
	var ids []string
	for _, b := range blocks {
		ids = append(ids, b.ID)
	}
	return ids
}

// A failed read does not mean that an object does not exist.
func TestFindPassesFailuresOn(t *testing.T) {
	broken := errors.New("broken")
	nothing := func(network.Block) bool { return false }
	for name, search := range map[string]account.Search{
		"a listed block": {Wanted: func(network.Block) bool { return true }},
		"an ID":          {Wanted: nothing, IDs: []string{"a"}},
		"the index":      {Wanted: nothing},
	} {
		a := account.New(account.Config{Cloud: &late{listed: []network.Block{{ID: "listed"}}, err: broken}})
		if _, err := a.Find(t.Context(), search); !errors.Is(err, broken) {
			t.Error(name, err)
		}
	}
}

// TestProveNeedsTheNetwork: an account that does not show the configured network proves nothing; a failure is no
// answer.
func TestProveNeedsTheNetwork(t *testing.T) {
	_, err := account.New(account.Config{Cloud: &late{}}).Prove(t.Context(), "net", time.Time{})
	if !errors.Is(err, account.ErrUnproven) || !strings.Contains(err.Error(), "public network net cannot be read") {
		t.Error(err)
	}
	api := &cloud{}
	network, err := account.New(account.Config{Cloud: api}).Prove(t.Context(), "net", time.Time{})
	if err != nil || network.ID != "net" {
		t.Error(network, err)
	}
	api.err = errors.New("broken")
	if _, err = account.New(account.Config{Cloud: api}).Prove(t.Context(), "net", time.Time{}); err == nil ||
		errors.Is(err, account.ErrUnproven) {
		t.Error(err)
	}
}

// TestListShowsWhatWasReadSince: a pass from the cache must not undo what a read by ID found.
func TestListShowsWhatWasReadSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assigned := of("uid", "a")
		assigned.Status = network.Assigned
		api := &late{listed: []network.Block{of("uid", "a"), of("uid", "b")},
			blocks: map[string]network.Block{"a": assigned}}
		a := account.New(account.Config{Cloud: api})
		statuses := func() (all []network.BlockStatus) {
			t.Helper()
			listing, err := a.Blocks(t.Context(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range listing.Blocks {
				all = append(all, b.Status)
			}
			return all
		}
		before := statuses()
		time.Sleep(time.Second)
		for _, id := range []string{"a", "b"} { // b cannot be read
			if _, _, err := a.Block(t.Context(), id, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := statuses(), []network.BlockStatus{network.Assigned, ""}; !slices.Equal(got, want) {
			t.Errorf("the list shows %q after %q, want %q", got, before, want)
		}
		a.Invalidate()
		if got := statuses(); !slices.Equal(got, before) {
			t.Errorf("after a change the list shows %q, want what the API lists: %q", got, before)
		}
	})
}
