package purchase_test

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
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
		recorded := &contract.Purchase{Nonce: "n", Time: test.at, BlockID: test.block}
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
