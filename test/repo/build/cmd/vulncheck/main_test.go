package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRun: a search that finds something fails, and one that cannot be made is named and does not.
func TestRun(t *testing.T) {
	found := errors.New("exit status 3")
	for name, test := range map[string]struct {
		status int
		want   error
		says   string
	}{
		"reached":      {status: http.StatusOK, want: found},
		"not for us":   {status: http.StatusForbidden, says: "it answers 403 Forbidden\n"},
		"out of reach": {says: "connection refused\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/index/db.json" {
					t.Errorf("asks for %s", r.URL.Path)
				}
				w.WriteHeader(test.status)
			}))
			defer server.Close()
			if test.status == 0 {
				server.Close()
			}
			searched := false
			var out strings.Builder
			err := run(t.Context(), server.URL, &out, func(_ context.Context, database string) error {
				searched = database == server.URL
				return found
			})
			if !errors.Is(err, test.want) || searched != (test.want != nil) {
				t.Errorf("searched: %t, %v; want %v", searched, err, test.want)
			}
			said := out.String()
			if !strings.HasSuffix(said, test.says) || strings.Count(said, "\n") != strings.Count(test.says, "\n") ||
				said != "" && !strings.HasPrefix(said, "govulncheck was NOT run: ") {
				t.Errorf("said %q, want %q", said, test.says)
			}
		})
	}
}
