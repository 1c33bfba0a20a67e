package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// TestUpgradeOfARefusedCommandHasNoType fails when SPDY's executor returns the API server's answer as a typed error, as
// WebSocket's does: then refused need not look for a text.
func TestUpgradeOfARefusedCommandHasNoType(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "phoenixnap-agent-x", nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := forbidden.Status()
		status.Kind = "Status"
		status.APIVersion = "v1"
		status.Message = `User "jane" cannot create resource "pods/exec" in API group ""`
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: server.URL}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, address)
	if err != nil {
		t.Fatal(err)
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	streams := remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard}
	err = spdy.StreamWithContext(t.Context(), streams)
	if apierrors.IsForbidden(err) {
		t.Errorf("SPDY's executor returns a typed error now: refused in diagnose.go may go without the text: %v", err)
	}
	if !refused(err) {
		t.Errorf("refused does not recognise SPDY's error: %v", err)
	}
	err = webSocket.StreamWithContext(t.Context(), streams)
	if !apierrors.IsForbidden(err) || !refused(err) {
		t.Errorf("WebSocket's executor returns no typed error any more: %v", err)
	}
}
