package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apihealthz "k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// TestHealthShowsTheAPI: whatever the phoenixNAP API does, the health of the process as a whole does not depend on it,
// and what is said of the API is true. Without a permission no reason is shown.
func TestHealthShowsTheAPI(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var process error
	checks := healthz.NewMutableHealthzHandler(apihealthz.NamedCheck("other", func(*http.Request) error {
		return process
	}))
	works := pnap.Health{LastSuccess: noon}
	fails := pnap.Health{LastSuccess: noon, FailingSince: noon.Add(time.Minute), Failure: "list servers: answer 401"}
	const failed = "[-]phoenixnap-api failed: reason withheld, see /healthz/phoenixnap-api (does not make /healthz " +
		"fail)\n"
	for _, c := range []struct {
		api     pnap.Health
		process error
		path    string
		status  int
		want    string
	}{
		{works, nil, "/healthz", http.StatusOK, "ok"},
		{works, nil, "/healthz?verbose", http.StatusOK, "[+]phoenixnap-api ok\n[+]other ok\nhealthz check passed\n"},
		{works, nil, "/healthz/phoenixnap-api", http.StatusOK, "ok"},
		{pnap.Health{}, nil, "/healthz?verbose", http.StatusOK,
			"[+]phoenixnap-api not asked yet\n[+]other ok\nhealthz check passed\n"},
		{fails, nil, "/healthz", http.StatusOK, "ok"},
		{fails, nil, "/healthz?verbose", http.StatusOK, failed + "[+]other ok\nhealthz check passed\n"},
		{fails, nil, "/healthz/phoenixnap-api", http.StatusInternalServerError,
			"the phoenixNAP API fails since 2026-03-01T12:01:00Z; it last answered at 2026-03-01T12:00:00Z: " +
				"list servers: answer 401\n"},
		{fails, nil, "/healthz/other", http.StatusOK, "ok"},
		{works, errors.New("hangs"), "/healthz", http.StatusInternalServerError,
			"[-]other failed: reason withheld\nhealthz check failed\n"},
		{fails, errors.New("hangs"), "/healthz?verbose", http.StatusInternalServerError,
			failed + "[-]other failed: reason withheld\nhealthz check failed\n"},
	} {
		process = c.process
		handler := &health{checks: checks, api: func() pnap.Health { return c.api }}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		if answer.Code != c.status || answer.Body.String() != c.want ||
			!strings.HasPrefix(answer.Header().Get("Content-Type"), "text/plain") && c.want != "ok" {
			t.Errorf("%s while %+v, %v: %d %q, want %d %q", c.path, c.api, c.process, answer.Code, answer.Body,
				c.status, c.want)
		}
	}
}
