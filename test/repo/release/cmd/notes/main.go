// Command notes prints what CHANGELOG.md says about a version.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/release"
)

func main() {
	flag.Parse()
	command.Main(func(context.Context) error { return run(flag.Arg(0), os.Stdout) })
}

func run(version string, out io.Writer) error {
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, release.Changelog))
	if err != nil {
		return err
	}
	notes, err := release.Notes(string(changelog), version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, notes)
	return err
}
