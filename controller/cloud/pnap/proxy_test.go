package pnap

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// TestProxyOfTheEnvironment: tokens, reads and changes are sent to the proxy, as the guide of the installation says.
// The process is another one, because net/http reads the environment once.
func TestProxyOfTheEnvironment(t *testing.T) {
	const child = "PROXY_TEST_CHILD"
	if os.Getenv(child) != "" {
		sendByProxy(t)
		return
	}
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Host)
		mu.Unlock()
		switch {
		case r.URL.Path == TokenPath:
			answer(w, http.StatusOK, map[string]any{"access_token": "tok-x", "token_type": "Bearer", "expires_in": 900})
		case r.Method == http.MethodGet:
			answer(w, http.StatusOK, []map[string]any{{"location": "ASH"}})
		default:
			answer(w, http.StatusOK, map[string]any{"result": "deleted", "ipBlockId": "b1"})
		}
	}))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{"POST auth.example.com", "GET api.example.com", "DELETE api.example.com"}
	if !slices.Equal(asked, want) {
		t.Errorf("the proxy received %q, want %q", asked, want)
	}
}

func sendByProxy(t *testing.T) {
	t.Helper()
	client, err := New(Config{BaseURL: "http://api.example.com", TokenURL: "http://auth.example.com" + TokenPath,
		Credentials: func() (string, string, error) { return testID, testSecret, nil },
		Fence:       func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.Locations(t.Context()); err != nil || !slices.Equal(got, []string{"ASH"}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := client.DeleteBlock(t.Context(), "b1"); err != nil {
		t.Error(err)
	}
}
