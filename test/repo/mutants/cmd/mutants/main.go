// Command mutants changes one decision of the controller at a time and reports which changes no test detects. It is run
// at the root, by make mutants.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/mutants"
)

func main() {
	generated := flag.Int("generated", 5, "how many generated mutations to try of each package")
	kept := flag.Bool("kept", true, "try the mutations of kept.yaml")
	only := flag.String("only", "", "a regular expression for the paths of the files to change; empty for all")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *kept, *generated, *only) })
}

func run(ctx context.Context, kept bool, generated int, only string) error {
	files, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	return mutants.Run(ctx, os.Stdout, mutants.Options{Root: ".", Kept: kept, Generated: generated, Only: files})
}
