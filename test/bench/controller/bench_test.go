package controller

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// report prints figures and fails the test for every broken limit, but none of a time: a machine that does other things
// is slow. make bench judges times.
func report(t *testing.T, figures []Figure, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i := range figures {
		figures[i].Limited = figures[i].Limited && figures[i].Unit != "s"
	}
	if err := Report(t.Output(), figures); err != nil {
		t.Error(err)
	}
}

// The small version of what make bench measures: the calls do not depend on how many Nodes and Services there are.
//
//proves:known-bugs/request-per-node
//proves:known-bugs/one-by-one
func TestFleet(t *testing.T) {
	t.Parallel()
	figures, err := MeasureFleet(t.Context(), t.TempDir(), t.Output(), Fleet{
		Nodes: 60, Services: 20, Published: 20, Settle: 3 * time.Second, Steady: 20 * time.Second,
		Within: 90 * time.Second,
	}, simtest.Specs(t))
	report(t, figures, err)
}

func TestPublication(t *testing.T) {
	t.Parallel()
	figures, err := MeasurePublication(t.Context(), t.TempDir(), 3, simtest.Specs(t))
	report(t, figures, err)
}

//proves:known-bugs/all-servers-on-join
func TestCalls(t *testing.T) {
	t.Parallel()
	figures, err := MeasureCalls(t.Context(), t.TempDir(), t.Output(), 10, simtest.Specs(t))
	report(t, figures, err)
}
