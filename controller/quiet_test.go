package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// A life without trouble, from the first Node to the end of a Service, leaves no error in the log, and nothing
// that fmt writes in the place of an argument that it cannot print.
//
//proves:known-bugs/noisy-log
func TestALifeWithoutTroubleIsQuiet(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	client := admin(t)
	register(t, client, "node-1")
	register(t, client, "node-2")
	p := startController(t, url)
	for name, server := range map[string]string{"node-1": simtest.Server1ID, "node-2": simtest.Server2ID} {
		eventually(t, 60*time.Second, func() error {
			return initialised(getNode(t, client, name), server,
				"203.0.113.")
		})
		report(t, client, name, corev1.ConditionTrue)
	}
	checkService(t, client, sim)
	p.end()
	loud := regexp.MustCompile(`^[EF]\d{4} |%!`)
	// The API server of the tests aggregates no others and has no CA for them, of which the framework complains.
	const aggregation = "requestheader-client-ca-file"
	for line := range strings.Lines(p.output()) {
		if loud.MatchString(line) && !strings.Contains(line, aggregation) {
			t.Errorf("the log of a life without trouble says: %s", line)
		}
	}
}
