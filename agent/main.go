//go:build linux

// Command agent runs on every node: it checks the node's way to the public network and the announced addresses, says so
// on its Node, and explains it to a person.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
)

// exitCode is an error that is no more than the code to exit with: what there was to say has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// memoryLimit, in bytes, is what the Go runtime keeps below by collecting garbage more often, where the environment
// variable GOMEMLIMIT says nothing else: a list of many Services must not leave the agent large for ever. It idles at a
// quarter of it.
const memoryLimit = 32 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	command := newCommand() //nolint:contextcheck // cobra hands the context of ExecuteContext to the commands
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	var code exitCode
	var misuse usageError
	switch {
	case err == nil:
		return diagnose.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &misuse):
		fmt.Fprintln(os.Stderr, "phoenixnap-agent:", err)
		return diagnose.ExitUsage
	default:
		fmt.Fprintln(os.Stderr, "phoenixnap-agent:", err)
		return diagnose.ExitFailed
	}
}
