// Command tools prepares what tests and the demo run, and prints where it is, one path a line:
//
//	tools [-packages PROGRAM,...] [NAME|./PACKAGE|all]...
//
// A NAME is a program such as kube-apiserver; ./PACKAGE is a program of this project; all stands for every NAME.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func main() {
	packages := flag.String("packages", "",
		"programs of the system, separated by commas, whose Debian packages are installed if they are missing")
	flag.Usage = func() {
		_, _ = fmt.Fprintf(os.Stderr,
			"usage: tools [-packages PROGRAM,...] [NAME|./PACKAGE|all]...\nNAME is one of %s\n",
			strings.Join(tools.Names(), ", "))
	}
	flag.Parse()
	command.Main(func(ctx context.Context) error { return prepare(ctx, os.Stdout, *packages, flag.Args()) })
}

// prepare does one thing after the other: a single build already uses the whole machine.
func prepare(ctx context.Context, out io.Writer, packages string, names []string) error {
	if packages != "" {
		if err := tools.Packages(ctx, strings.Split(packages, ",")...); err != nil {
			return err
		}
	}
	if slices.Equal(names, []string{"all"}) {
		names = tools.Names()
	}
	for _, name := range names {
		get := tools.Binary
		if strings.HasPrefix(name, "./") {
			get = tools.Product
		}
		path, err := get(ctx, name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, path); err != nil {
			return err
		}
	}
	return nil
}
