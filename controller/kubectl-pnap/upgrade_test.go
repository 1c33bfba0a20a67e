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

// TestUpgradeOfARefusedCommandHasNoType fails when client-go returns the API server's answer as a typed error, over
// SPDY and over WebSocket: then refused need not look for a text.
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
	typed := 0
	for name, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": webSocket} {
		err := executor.StreamWithContext(t.Context(), streams)
		if apierrors.IsForbidden(err) {
			typed++
		}
		if !refused(err) {
			t.Errorf("refused does not recognise the error of %s: %v", name, err)
		}
	}
	if typed == 2 {
		t.Error("both executors return typed errors now: refused in diagnose.go may go without the text")
	}
}
