// Command release puts a release together in a directory and prints what it would publish. With -tested it notes that
// the release in the directory has passed the end-to-end test, with -publish it publishes that one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/release"
)

func main() {
	var r release.Release
	flag.StringVar(&r.Dir, "dir", "dist/release", "directory of the release; it is replaced")
	flag.StringVar(&r.Programs, "programs", "dist/bin", "directory of the programs that make build made")
	flag.StringVar(&r.Registry, "registry", release.Registry, "registry and organisation of the images")
	tested := flag.Bool("tested", false, "note that the release has passed the end-to-end test")
	publish := flag.Bool("publish", false, "publish the images and the chart, and a release on GitHub")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		root, err := tools.ModuleRoot()
		if err != nil {
			return err
		}
		r.Root = root
		switch {
		case *tested:
			return r.RecordTested()
		case *publish:
			return publishTested(ctx, r)
		default:
			return assemble(ctx, r, os.Stdout)
		}
	})
}

// assemble builds with the base image that the Dockerfiles name, unless the environment names another.
func assemble(ctx context.Context, r release.Release, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "pnap-release-")
	if err != nil {
		return err
	}
	builder, err := image.NewBuilder(ctx, dir, os.Stderr)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, builder.Remove(context.WithoutCancel(ctx))) }()
	builder.Base = os.Getenv(image.BaseVariable)
	r.Stamp = builder.Stamp
	published, err := r.Assemble(ctx, builder)
	if err != nil {
		return fmt.Errorf("%w (%s=%s needs no registry)", err, image.BaseVariable, image.Scratch)
	}
	fmt.Fprintf(out, "%s is in %s; its images and its chart are\n", r.Stamp.Version, r.Dir)
	release.Report(published, out)
	steps, err := steps(r)
	if err != nil {
		fmt.Fprintln(out, err)
	}
	fmt.Fprintln(out, "make publish would run")
	for _, s := range steps {
		fmt.Fprintln(out, " ", strings.Join(s.Args, " "))
	}
	return nil
}

// steps are the command lines that publish what is in the directory.
func steps(r release.Release) ([]image.Step, error) {
	published, err := r.Contents()
	if err != nil {
		return nil, err
	}
	announce, err := r.Announce(published[0].Version())
	return append(r.Publish(published), announce...), err
}

// publishTested publishes the release in the directory, unless it has not been tested or is not in the changelog.
func publishTested(ctx context.Context, r release.Release) error {
	steps, err := steps(r)
	if err = errors.Join(r.CheckTested(), err); err != nil {
		return errors.Join(err, errors.New("nothing was published"))
	}
	if err := tools.Packages(ctx, "skopeo", "gh"); err != nil {
		return err
	}
	if _, err := tools.Program("cosign"); err != nil {
		return fmt.Errorf("signatures need cosign (https://docs.sigstore.dev): %w", err)
	}
	return image.Do(ctx, steps, os.Stderr)
}
