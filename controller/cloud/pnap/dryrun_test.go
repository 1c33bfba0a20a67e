package pnap

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In a dry run no change reaches the API, no token is requested for it, and the error reports what would be done.
func TestDryRunSendsNoChange(t *testing.T) {
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) })
	client := clientOf(t, s, func(c *Config) { c.DryRun = true })
	ctx := t.Context()
	_, buy := client.BuyBlock(ctx, BlockRequest{Location: "ASH", Size: "/29"})
	for want, err := range map[string]error{
		"dry run: would buy IP block /29 in ASH": buy,
		"dry run: would delete IP block b1":      client.DeleteBlock(ctx, "b1"),
		"dry run: would set tags of IP block b1": client.SetBlockTags(ctx, "b1",
			map[string]string{"a": "b"}),
		"dry run: would assign IP block b1 to public network n1":     client.AssignBlock(ctx, "n1", "b1"),
		"dry run: would unassign IP block b1 from public network n1": client.UnassignBlock(ctx, "n1", "b1"),
		"dry run: would join server s1 to public network n1": client.JoinNetwork(ctx, "s1", "n1",
			[]netip.Addr{netip.MustParseAddr("203.0.113.2")}, false),
		"dry run: would take server s1 out of public network n1": client.LeaveNetwork(ctx, "s1", "n1"),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
		if !IsDryRun(err) || classificationOf(err) != (classification{}) {
			t.Errorf("%v: dry run %t, %+v", err, IsDryRun(err), classificationOf(err))
		}
	}
	if s.issued != 0 || client.Health().Failing() {
		t.Errorf("%d tokens, health %+v", s.issued, client.Health())
	}
}

// A purchase needs tags: missing tags must not prevent the report of the purchase.
func TestDryRunPassesOverMissingTags(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s was sent", r.Method, r.URL)
		}
		answer(w, http.StatusOK, []any{})
	})
	client := clientOf(t, s, func(c *Config) { c.DryRun = true })
	if err := client.EnsureTags(t.Context(), "usage", "cluster"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestOtherErrorsAreNoDryRun(t *testing.T) {
	for _, err := range []error{nil, &Error{StatusCode: 500}, http.ErrAbortHandler} {
		if IsDryRun(err) {
			t.Errorf("%v counts as a dry run", err)
		}
	}
}

// Tags are listed once, until the API rejects one.
func TestEnsureTagsRemembers(t *testing.T) {
	var requests []string
	status := http.StatusCreated
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		switch r.Method {
		case http.MethodGet:
			answer(w, http.StatusOK, []any{map[string]any{"id": "t1", "name": "usage", "isBillingTag": false}})
		default:
			answer(w, status, map[string]any{"id": "x", "name": "service", "isBillingTag": false})
		}
	})
	client := clientOf(t, s)
	ensure := func(names ...string) {
		t.Helper()
		if err := client.EnsureTags(t.Context(), names...); err != nil {
			t.Fatal(err)
		}
	}
	ensure("usage", "service")
	ensure("service")
	ensure("usage", "service")
	status = http.StatusBadRequest
	if _, err := client.BuyBlock(t.Context(), BlockRequest{Location: "ASH", Size: "/29"}); !IsRefused(err) {
		t.Fatalf("got %v", err)
	}
	status = http.StatusCreated
	ensure("usage")
	const list, create, buy = "GET /tag-manager/v1/tags", "POST /tag-manager/v1/tags", "POST /ips/v1/ip-blocks"
	if diff := cmp.Diff([]string{list, create, buy, list}, requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
