package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Lease is compared with the clock of the API server, whatever the clock of the user's machine shows.
func TestTheClockIsThatOfTheAPIServer(t *testing.T) {
	for _, behind := range []time.Duration{0, time.Hour, -time.Hour} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
		}))
		t.Cleanup(server.Close)
		var c clock
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.wrap(http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if off := c.now().Sub(time.Now().Add(-behind)); off.Abs() > time.Minute {
			t.Errorf("the API server is %s behind, and the clock is off by %s", behind, off)
		}
	}
	var c clock
	if off := time.Until(c.now()); off.Abs() > time.Minute {
		t.Errorf("without an answer the clock is off by %s", off)
	}
}

// The plugin as it is started reads a real API server by that server's clock.
func TestTheShippedClock(t *testing.T) {
	s := newFixture(t)
	leases := s.kube.CoordinationV1().Leases("kube-system")
	s.ok(leases.Delete(t.Context(), "phoenixnap-cloud-controller-manager", metav1.DeleteOptions{}))
	s.lease("ccm-0", time.Now())
	var out strings.Builder
	command := newCommand(func(string) (string, bool) { return "", false }, nil)
	command.SetOut(&out)
	command.SetErr(io.Discard)
	command.SetArgs([]string{"status", "--kubeconfig=" + kubeconfig(t, plane.Config())})
	_ = command.ExecuteContext(t.Context()) // there are problems
	if !strings.Contains(out.String(), "ccm-0 is the leader") {
		t.Error(out.String())
	}
}
