package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const text = `# HELP phoenixnap_agent_check State of each check.
# TYPE phoenixnap_agent_check gauge
phoenixnap_agent_check{id="PN101",severity="error",status="warn"} 0
phoenixnap_agent_check{id="PN105",severity="warning",status="fail"} 0
phoenixnap_agent_check{id="PN105",severity="warning",status="warn"} 1
phoenixnap_agent_checks_total{id="PN105"} 7
phoenixnap_agent_check_age 3
`

func TestSample(t *testing.T) {
	for name, tc := range map[string]struct {
		want  sample
		error string
	}{
		"has the value": {sample{"phoenixnap_agent_check", regexp.MustCompile(`id="PN105",.*status="warn"`), 1},
			""},
		"has another value": {sample{"phoenixnap_agent_check", regexp.MustCompile(`id="PN101"`), 3}, "want 3"},
		"all of them":       {sample{"phoenixnap_agent_check", regexp.MustCompile(""), 0}, "PN105"},
		"one of two":        {sample{"phoenixnap_agent_check", regexp.MustCompile(`id="PN105"`), 1}, "want 1"},
		"no such label":     {sample{"phoenixnap_agent_check", regexp.MustCompile(`id="PN999"`), 0}, "no sample"},
		"no such metric":    {sample{"phoenixnap_agent_chec", regexp.MustCompile(""), 0}, "no sample"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.want.in(strings.NewReader(text))
			if (err == nil) != (tc.error == "") || err != nil && !strings.Contains(err.Error(), tc.error) {
				t.Errorf("error %v, want %q", err, tc.error)
			}
		})
	}
}

func TestAwait(t *testing.T) {
	var looks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if looks.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "gauge{a=\"b\"} %d\n", looks.Load())
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := await(ctx, server.URL, sample{"gauge", regexp.MustCompile(`a="b"`), 3}); err != nil {
		t.Error(err)
	}
	over, stop := context.WithTimeout(t.Context(), 3*every)
	defer stop()
	if err := await(over, server.URL, sample{"gauge", regexp.MustCompile(`a="b"`), -1}); err == nil ||
		!strings.Contains(err.Error(), "want -1") {
		t.Errorf("error %v does not contain the last state", err)
	}
}
