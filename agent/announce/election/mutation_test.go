package election

import (
	"fmt"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// mutations break the rules one by one.
var mutations = map[string]func(r *rules){
	"the lease outlasts the suspect timeout": func(r *rules) { r.lease = 500 * time.Millisecond },
	"half of the members are a majority": func(r *rules) {
		r.majority = func(n int) int {
			return max(1, n/2)
		}
	},
	"one member is a majority":                       func(r *rules) { r.majority = func(int) int { return 1 } },
	"a member that has seen a newer view supports":   func(r *rules) { r.newerVoids = false },
	"a lease runs from the acknowledgement":          func(r *rules) { r.sentTime = false },
	"an agent that starts counts at once":            func(r *rules) { r.startUpDelay = false },
	"an agent that starts has stopped answering":     func(r *rules) { r.startHandsOver = false },
	"an agent that starts supports by an old view":   func(r *rules) { r.readFirst = false },
	"a new owner answers at once":                    func(r *rules) { r.proof = false },
	"a new owner does not wait for a lease":          func(r *rules) { r.stableProof = false },
	"a member that has not seen the new view blocks": func(r *rules) { r.blockedProof = false },
	"one member blocks":                              func(r *rules) { r.blocking = func(int) int { return 1 } },
	"a handed over address is answered forever":      func(r *rules) { r.boundedDraining = false },
	"members are removed without a quorum":           func(r *rules) { r.quorum = false },
	"members are removed one after another":          func(r *rules) { r.stableRemoval = false },
	"members join before others are established":     func(r *rules) { r.establishedJoin = false },
	"a member that does not hear is supported":       func(r *rules) { r.mutual = false },
	"a node that is cut off removes others":          func(r *rules) { r.askGateway = false },
	"no node catches up":                             func(r *rules) { r.maxStaleReads = 1 << 30 },
	"a majority that was suspended does not ask":     func(r *rules) { r.readAfterLapse = false },
	"two agents of one name answer":                  func(r *rules) { r.yieldToLater = false },
}

// TestMutations: each broken rule shows in the model.
func TestMutations(t *testing.T) {
	shown := 0
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			r := standardRules()
			mutate(&r)
			by := detect(r, seeds.Count(t, 600))
			if by == "" {
				t.Fatal("nothing shows it")
			}
			shown++
			t.Log("caught by " + by)
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_model_mutations_caught %d mutations\n", shown)
}

// detect returns what shows that the rules are broken; empty when nothing does.
func detect(r rules, walks int) string {
	for name, trap := range traps {
		for seed := range uint64(5) {
			if _, wrong := runTrap(seed, r, trap); wrong != "" {
				return fmt.Sprintf("%s %d: %s", name, seed, wrong)
			}
		}
	}
	for name, trap := range nodeTraps {
		for seed := range uint64(5) {
			if wrong := trap(newWorld(seed, 3, 4, r)); wrong != "" {
				return fmt.Sprintf("%s %d: %s", name, seed, wrong)
			}
		}
	}
	for seed := range uint64(walks) {
		if seed%40 == 0 {
			for name, s := range scenarios {
				if _, _, wrong := s.run(seed, r); wrong != "" {
					return fmt.Sprintf("%s %d: %s", name, seed, wrong)
				}
			}
		}
		if wrong := anyWalk(seed, r).play(); wrong != "" {
			return fmt.Sprintf("walk %d: %s", seed, wrong)
		}
	}
	return ""
}
