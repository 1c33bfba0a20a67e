package pnap

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/oauth2/clientcredentials"
)

// TestUpgradeTokenHasOnlyAnExpiry fails when a newer golang.org/x/oauth2 returns the lifetime of a token: then fetch
// may use it, and need not compute it from the expiry and the real clock.
func TestUpgradeTokenHasOnlyAnExpiry(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"access_token": "t", "token_type": "Bearer", "expires_in": 300}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	config := clientcredentials.Config{ClientID: "id", ClientSecret: "secret", TokenURL: server.URL}
	token, err := config.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if token.Expiry.IsZero() {
		t.Error("the token has no expiry, from which fetch in token.go computes its lifetime")
	}
	if token.ExpiresIn != 0 {
		t.Errorf("the library returns the lifetime (%d s): use ExpiresIn in fetch in token.go, without the clock",
			token.ExpiresIn)
	}
}
