// Command reference writes the tables and the pages of findings of docs/reference from the code, and the values of the
// chart from its values.yaml. It is run at the root of the repository, by make docs.
package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
)

func main() { command.Main(write) }

func write(ctx context.Context) error {
	constants, err := reference.Constants(".", "agent", "controller", "pkg")
	if err != nil {
		return err
	}
	help := map[string]string{}
	for _, command := range []string{"run", "diagnose"} {
		out, err := exec.CommandContext(ctx, "go", "run", "./agent", command, "--help").Output()
		if err != nil {
			return fmt.Errorf("ask the agent for the flags of %s: %w", command, err)
		}
		help[command] = string(out)
	}
	tables, err := reference.Tables(".", constants, help)
	if err != nil {
		return err
	}
	pages, err := reference.Pages(".", tables)
	if err != nil {
		return err
	}
	findings, err := reference.Findings(".")
	if err != nil {
		return err
	}
	maps.Copy(pages, findings)
	return reference.Write("docs", pages)
}
