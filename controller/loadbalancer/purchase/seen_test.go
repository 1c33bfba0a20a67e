package purchase_test

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
)

func TestBoundedPurchase(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		block string
		at    time.Time
		want  time.Time
	}{
		"unanswered, now":          {at: noon, want: noon},
		"unanswered, in 2099":      {at: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), want: noon},
		"unanswered, in 1970":      {at: time.Unix(1, 0), want: noon},
		"unanswered, a minute ago": {at: noon.Add(-time.Minute), want: noon},
		"answered, in 2099":        {block: "b", at: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), want: noon},
		"answered, in a second":    {block: "b", at: noon.Add(time.Second), want: noon},
		"answered, a minute ago":   {block: "b", at: noon.Add(-time.Minute), want: noon.Add(-time.Minute)},
	} {
		now := noon
		seen := purchase.NewSeen(func() time.Time { return now })
		recorded := &ipblock.Purchase{Nonce: "n", Time: test.at, BlockID: test.block}
		for range 30 { // it is read again and again, for hours
			if got := seen.Bounded(recorded).Time; !got.Equal(test.want) {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
			now = now.Add(time.Hour)
		}
		if !recorded.Time.Equal(test.at) {
			t.Errorf("%s: the record was changed", name)
		}
		later := *recorded
		later.Nonce = "another"
		later.BlockID = ""
		if got := seen.Bounded(&later).Time; !got.Equal(now) {
			t.Errorf("%s: the next purchase counts from %s, want %s", name, got, now)
		}
	}
	if seen := purchase.NewSeen(time.Now); seen.Bounded(nil) != nil {
		t.Error("no purchase became one")
	}
}

// TestBoundedRecords: neither the time of a purchase nor that of an object is believed to be in the future.
func TestBoundedRecords(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	seen := purchase.NewSeen(func() time.Time { return noon })
	later := noon.Add(6 * time.Hour)
	before := noon.Add(-time.Hour)
	got := seen.BoundedAll(ipblock.Records{
		{Name: "bought", Purchase: ipblock.Purchase{Nonce: "n", BlockID: "b", Time: later}, Created: later},
		{Name: "found", Created: later},
		{Name: "old", Created: before},
	})
	for i, want := range []time.Time{noon, noon, before} {
		if !got[i].Created.Equal(want) {
			t.Errorf("%s was created at %s, want %s", got[i].Name, got[i].Created, want)
		}
	}
	if !got[0].Time.Equal(noon) || !got[1].Time.IsZero() {
		t.Errorf("bought at %s, found with %s", got[0].Time, got[1].Time)
	}
}
