package account_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// late is an API whose list of blocks shows nothing.
type late struct {
	blocks map[string]plan.Block
	// index is the index of tags, which may contain deleted blocks.
	index map[string]map[string]string
	asked []string
	err   error
}

func (l *late) Blocks(context.Context, map[string]string) ([]plan.Block, error) { return nil, nil }

func (l *late) Network(context.Context, string) (plan.Network, error) {
	return plan.Network{}, nil
}

func (l *late) Block(_ context.Context, id string) (plan.Block, error) {
	l.asked = append(l.asked, id)
	if block, found := l.blocks[id]; found || l.err != nil {
		return block, l.err
	}
	return plan.Block{}, &pnap.Error{Op: "get IP block", StatusCode: 403}
}

func (l *late) TagAssignments(_ context.Context, name string) (map[string]string, error) {
	l.asked = append(l.asked, name)
	return maps.Clone(l.index[name]), l.err
}

func TestFind(t *testing.T) {
	api := &late{
		blocks: map[string]plan.Block{"a": {ID: "a"}, "b": {ID: "b"}, "c": {ID: "c"}},
		index:  map[string]map[string]string{contract.TagNodes: {"c": "uid", "gone": "uid", "other": "another"}},
	}
	seen := []plan.Sighting{{Block: plan.Block{ID: "a"}, Hidden: true}}
	owners := []plan.Owner{{Cluster: "uid", Nodes: true}}
	for name, test := range map[string]struct {
		search account.Search
		want   []string
		asked  []string
	}{
		"nothing":          {},
		"seen blocks stay": {search: account.Search{Seen: seen, IDs: []string{"a"}}, want: []string{"a"}},
		"by its ID": {search: account.Search{Seen: seen, IDs: []string{"b", "", "b", "gone"}},
			want: []string{"a", "b"}, asked: []string{"b", "gone"}},
		"by its tag": {search: account.Search{IDs: []string{"b"}, Owners: owners}, want: []string{"b", "c"},
			asked: []string{contract.TagNodes, "b", "c", "gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			api.asked = nil
			a := account.New(account.Config{Cloud: api})
			test.search.After = time.Now()
			for range 2 { // the second time from the cache
				found, err := a.Find(t.Context(), test.search)
				var ids []string
				for _, s := range found {
					ids = append(ids, s.Block.ID)
				}
				if err != nil || !slices.Equal(ids, test.want) {
					t.Errorf("found %v, %v; want %v", ids, err, test.want)
				}
			}
			if !slices.Equal(api.asked, test.asked) {
				t.Errorf("asked %v, want %v", api.asked, test.asked)
			}
			if len(test.asked) == 0 {
				return
			}
			a.Invalidate()
			if _, err := a.Find(t.Context(), test.search); err != nil || len(api.asked) != 2*len(test.asked) {
				t.Errorf("asked %v after a change, %v", api.asked, err)
			}
		})
	}
}

func TestUnlisted(t *testing.T) {
	ours := map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "uid"}
	api := &late{
		blocks: map[string]plan.Block{"listed": {ID: "listed", Tags: ours}, "new": {ID: "new", Tags: ours},
			"brought": {ID: "brought"}},
		index: map[string]map[string]string{contract.TagCluster: {"listed": "uid", "new": "uid", "brought": "uid",
			"gone": "uid", "other": "another"}},
	}
	a := account.New(account.Config{Cloud: api})
	found, err := a.Unlisted(t.Context(), "uid", []plan.Block{{ID: "listed"}}, time.Now())
	if err != nil || len(found) != 1 || found[0].ID != "new" {
		t.Errorf("found %v, %v", found, err)
	}
}

// A failed read does not mean that an object does not exist.
func TestFindPassesFailuresOn(t *testing.T) {
	broken := errors.New("broken")
	a := account.New(account.Config{Cloud: &late{err: broken}})
	for i, search := range []account.Search{{IDs: []string{"a"}},
		{Owners: []plan.Owner{{Cluster: "uid", Nodes: true}}}} {
		if _, err := a.Find(t.Context(), search); !errors.Is(err, broken) {
			t.Error(fmt.Sprint(i, ": ", err))
		}
	}
	if _, err := a.Unlisted(t.Context(), "uid", nil, time.Time{}); !errors.Is(err, broken) {
		t.Error(err)
	}
}
