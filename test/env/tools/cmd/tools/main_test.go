package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPreparePrintsPaths(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kube-vip")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_VIP_BINARY", program)
	t.Setenv("PNAP_CACHE", t.TempDir())
	var out strings.Builder
	names := []string{"kube-vip-v1.0.0", "./test/env/tools/cmd/tools", "kube-vip-v0.9.1"}
	if err := prepare(t.Context(), &out, "sh", names); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != program || lines[2] != program || filepath.Base(lines[1]) != "tools" {
		t.Errorf("prepare() printed %q, want a path for each of %v", lines, names)
	}
}

func TestPrepareNamesWhatItDoesNotKnow(t *testing.T) {
	var out strings.Builder
	err := prepare(t.Context(), &out, "", []string{"minikube"})
	if err == nil || !strings.Contains(err.Error(), `"minikube"`) {
		t.Errorf("prepare() = %v, want an error that names minikube", err)
	}
}
