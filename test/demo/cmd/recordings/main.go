//go:build linux

// Command recordings plays the demo and draws what users see in it as pictures for README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo/terminal"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

func main() {
	dir := flag.String("dir", "docs/images", "where the pictures are written")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *dir) })
}

// run plays the story and writes the pictures only when all of it went well.
func run(ctx context.Context, dir string) error {
	recorded := demo.Screens()
	o := demo.Options{Out: os.Stdout, Scale: 10,
		Record: func(recording string, c terminal.Command) {
			recorded[recording].Commands = append(recorded[recording].Commands, c)
		}}
	if err := demo.Prepare(ctx, o); err != nil {
		return err
	}
	logs, err := os.MkdirTemp("", "pnap-recordings-")
	if err != nil {
		return fmt.Errorf("directory for logs: %w", err)
	}
	defer os.RemoveAll(logs) //nolint:errcheck // temporary
	o.Dir = logs
	if err := demo.Run(ctx, o, nil); err != nil {
		return err
	}
	for name, screen := range recorded {
		svg, err := screen.SVG()
		if err != nil {
			return fmt.Errorf("draw the recording %s: %w", name, err)
		}
		file := filepath.Join(dir, name+".svg")
		if err := os.WriteFile(file, svg, 0o644); err != nil {
			return fmt.Errorf("write the recording %s: %w", name, err)
		}
		fmt.Fprintln(o.Out, file)
	}
	return nil
}
