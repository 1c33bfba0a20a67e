package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const seed = `{"accounts":[{"id":"demo","clients":[{"id":"ccm","secret":"s3cret"}],
	"blocks":[{"location":"ASH","cidr":"203.0.113.0/28"}]}]}`

func seedFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "seed.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServesUntilCancelled: the address is printed, the seed is served, requests are logged, and the end
// of the context, which SIGTERM brings, ends it without an error, even while a request waits.
func TestServesUntilCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--seed", seedFile(t, seed), "--scale", "10", "--latency-response", "0s"}, in, &log)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if !ok || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("it printed %q", line)
	}
	if got := get(t, url+"/location-api/v1/locations"); !strings.Contains(got, "ASH") {
		t.Errorf("locations %s", got)
	}
	if got := get(t, url+"/_fake/state?account=demo"); !strings.Contains(got, "203.0.113.0/28") {
		t.Errorf("state %s", got)
	}
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/_fake/dataplane?revision=1", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	<-waiting
	if got := log.String(); !strings.Contains(got, " 200 GET /location-api/v1/locations\n") {
		t.Errorf("log %q", got)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRefusesWrongOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"flag":      {"--colour"},
		"argument":  {"serve"},
		"latency":   {"--latency-assign", "-1s"},
		"no seed":   {"--openapi", noDocuments, "--seed", filepath.Join(t.TempDir(), "none.json")},
		"seed":      {"--openapi", noDocuments, "--seed", seedFile(t, `{"accounts":[{}]}`)},
		"documents": {"--openapi", t.TempDir()},
		"address":   {"--openapi", noDocuments, "--listen", "256.0.0.1:0"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%s: %q was taken", name, args)
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	var text bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, io.Discard, &text); err != nil ||
		!strings.Contains(text.String(), "-seed") {
		t.Errorf("%v: %s", err, text.String())
	}
}
