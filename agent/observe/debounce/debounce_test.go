package debounce

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// observed is what Observe returned.
type observed struct {
	Held            string
	Stable, Pending bool
}

func TestObserve(t *testing.T) {
	for name, tc := range map[string]struct {
		// samples start with the letter of their class; a bad one needs two in a row, a good one none.
		samples []string
		want    []observed
	}{
		"good at once": {[]string{"g1"}, []observed{{"g1", true, false}}},
		"bad twice":    {[]string{"b1", "b2"}, []observed{{"", false, true}, {"b2", true, false}}},
		"bad once": {[]string{"g1", "b1", "g2", "b2"},
			[]observed{{"g1", true, false}, {"g1", true, true}, {"g2", true, false}, {"g2", true, true}}},
		"same class renews": {[]string{"g1", "g2"}, []observed{{"g1", true, false}, {"g2", true, false}}},
		"rivals by turns": {[]string{"g1", "b1", "c1", "b2", "b3"}, []observed{{"g1", true, false},
			{"g1", true, true}, {"g1", true, true}, {"g1", true, true}, {"b3", true, false}}},
		"good after bad": {[]string{"b1", "b2", "g1"},
			[]observed{{"", false, true}, {"b2", true, false}, {"g1", true, false}}},
		"good breaks a row": {[]string{"b1", "g1", "b2"},
			[]observed{{"", false, true}, {"g1", true, false}, {"g1", true, true}}},
		"nothing is pending": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var v Value[string]
			var got []observed
			for _, sample := range tc.samples {
				held, stable, pending := v.Observe(sample, sample[:1], needed(sample))
				got = append(got, observed{held, stable, pending})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func needed(sample string) int {
	if sample[0] == 'g' {
		return 1
	}
	return 2
}

// For all samples: the current class was observed as often in a row as it needs when it was accepted, and while it is
// current no other class was.
func TestHeldClassWasSeenInARow(t *testing.T) {
	for seed := range seeds.Count(t, 100) {
		random := rand.New(rand.NewPCG(uint64(seed), 5))
		var v Value[string]
		row := 0
		last := ""
		for range 200 {
			sample := []string{"g", "b", "c"}[random.IntN(3)]
			if sample != last {
				row = 0
				last = sample
			}
			row++
			before := v.Class()
			_, stable, pending := v.Observe(sample, sample, needed(sample))
			switch held := v.Class(); {
			case stable != (held != ""), pending != (held != sample):
				t.Fatalf("seed %d: stable %t, pending %t while %q is held and %q is seen", seed, stable, pending,
					held, sample)
			case held != before && (held != sample || row < needed(sample)):
				t.Fatalf("seed %d: %q taken up after %d of %q", seed, held, row, sample)
			case held == before && held != sample && row >= needed(sample):
				t.Fatalf("seed %d: %q held against %d of %q in a row", seed, held, row, sample)
			}
		}
	}
}
