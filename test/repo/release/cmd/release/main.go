// Command release puts a release together in a directory and prints what it would publish. With -publish it does,
// unless an image has not passed the end-to-end test.
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
	flag.StringVar(&r.Registry, "registry", "docker.io/phoenixnap", "registry and organisation of the images")
	publish := flag.Bool("publish", false, "publish the images, and a release on GitHub")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, r, *publish, os.Stdout) })
}

func run(ctx context.Context, r release.Release, publish bool, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "pnap-release-")
	if err != nil {
		return err
	}
	builder, err := image.NewBuilder(ctx, dir, os.Stderr)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, builder.Remove(context.WithoutCancel(ctx))) }()
	if r.Root, err = tools.ModuleRoot(); err != nil {
		return err
	}
	r.Stamp = builder.Stamp
	published, err := r.Assemble(ctx, builder)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is in %s; its images are\n", r.Stamp.Version, r.Dir)
	untested := release.Report(published, image.Tested, out)
	steps := r.Publish(published)
	announce, unannounced := r.Announce()
	if unannounced == nil {
		steps = append(steps, announce)
	}
	if publish {
		return publishTested(ctx, errors.Join(untested, unannounced), steps)
	}
	if unannounced != nil {
		fmt.Fprintln(out, unannounced)
	}
	fmt.Fprintln(out, "PUBLISH=1 would run")
	for _, s := range steps {
		fmt.Fprintln(out, " ", strings.Join(s.Args, " "))
	}
	return nil
}

// publishTested runs the steps unless something has not been tested or is not in the changelog.
func publishTested(ctx context.Context, missing error, steps []image.Step) error {
	if missing != nil {
		return errors.Join(missing, errors.New("nothing was published"))
	}
	if err := tools.Packages(ctx, "skopeo", "gh"); err != nil {
		return err
	}
	return image.Do(ctx, steps, os.Stderr)
}
