package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/controller-manager/pkg/healthz"
)

// The framework's own handler serves the detail: the process is healthy, the detail is not.
func TestDetailDoesNotSpoilTheWhole(t *testing.T) {
	var failure error
	detail := newDetail(func() error { return failure })
	handler := healthz.NewMutableHealthzHandler(healthz.NamedPingChecker("other"), detail)
	for _, c := range []struct {
		failure    error
		path, text string
		status     int
	}{
		{nil, "/healthz", "ok", http.StatusOK},
		{nil, "/healthz/phoenixnap-api", "ok", http.StatusOK},
		{errors.New("fails since noon"), "/healthz", "ok", http.StatusOK},
		{errors.New("fails since noon"), "/healthz/phoenixnap-api", "fails since noon", http.StatusInternalServerError},
		{errors.New("fails since noon"), "/healthz/other", "ok", http.StatusOK},
	} {
		failure = c.failure
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		if answer.Code != c.status || !strings.Contains(answer.Body.String(), c.text) {
			t.Errorf("%s while %v: %d %s, want %d %s", c.path, c.failure, answer.Code, answer.Body, c.status, c.text)
		}
	}
}
