//go:build linux

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
)

// TestStarted: the startup probe succeeds from when the agent has its turn.
func TestStarted(t *testing.T) {
	started := func() int { return run(t.Context(), []string{"started"}) }
	if code := started(); code != diagnose.ExitFailed {
		t.Errorf("exit code %d without an agent", code)
	}
	turn := standby.New("")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- startedReporter{turn}.Run(ctx) }()
	if code := started(); code != diagnose.ExitFailed {
		t.Errorf("exit code %d before its turn", code)
	}
	if _, err := turn.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); started() != diagnose.ExitOK; {
		if time.Now().After(deadline) {
			t.Fatal("it has not started after a minute")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAnnounceFlags: a value out of bounds is an error that names the flag.
func TestAnnounceFlags(t *testing.T) {
	for rebalance, right := range map[time.Duration]bool{0: true, time.Second: false, minRebalance: true} {
		err := (&announceFlags{rebalance: rebalance}).check()
		if right != (err == nil) || !right && !strings.Contains(err.Error(), "--announcer-rebalance") {
			t.Errorf("%s: %v", rebalance, err)
		}
	}
}
