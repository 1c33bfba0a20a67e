//go:build linux

// Command node makes a server of the lab a node: node SPEC, where SPEC is a file with the node.Spec as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == node.EnterCommand {
		fmt.Fprintln(os.Stderr, node.Enter(os.Args[2:])) // it returns only when it fails
		os.Exit(1)
	}
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: node SPEC")
	}
	raw, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var spec node.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if err := spec.Assemble(); err != nil {
		return err
	}
	return spec.Run(ctx, os.Stdout)
}
