// Command images builds the images of this project with docker, podman or buildah, whichever works here, and pushes
// them where that is asked for. It prints every command line that it runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// options are what make hands over.
type options struct {
	registry, tag, platforms, engine, stamp, base, prebuilt string
	push, dryRun                                            bool
}

func main() {
	var o options
	flag.StringVar(&o.registry, "registry", "",
		"registry and organisation of the images' names, such as registry.example.com/team")
	flag.StringVar(&o.tag, "tag", "", "tag of the images; the version if empty")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64", "platforms, separated by commas")
	flag.StringVar(&o.engine, "engine", "", "docker, podman or buildah; the first that works if empty")
	flag.StringVar(&o.stamp, "stamp", "", "what `make version` prints")
	flag.StringVar(&o.base, "base", "", "base image instead of the Dockerfiles' own")
	flag.StringVar(&o.prebuilt, "prebuilt", "",
		"directory of binaries that make made; if empty, they are compiled in a container")
	flag.BoolVar(&o.push, "push", false, "push the images to the registry")
	flag.BoolVar(&o.dryRun, "dry-run", false, "print the command lines and do nothing")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return o.run(ctx, os.Stdout) })
}

func (o options) run(ctx context.Context, out io.Writer) error {
	engine, err := image.Choose(o.engine, func(name string) bool { return works(ctx, name) })
	if err != nil {
		return err
	}
	steps, err := o.steps(engine)
	if err != nil {
		return err
	}
	for _, s := range steps {
		fmt.Fprintln(out, strings.Join(s.Args, " "))
		if o.dryRun {
			continue
		}
		if err := image.Do(ctx, []image.Step{s}, os.Stderr); err != nil {
			return err
		}
	}
	return nil
}

// steps are the command lines for all images.
func (o options) steps(engine image.Engine) ([]image.Step, error) {
	root, err := tools.ModuleRoot()
	if err != nil {
		return nil, err
	}
	stamp, err := image.ParseStamp(o.stamp)
	if err != nil {
		return nil, err
	}
	platforms, err := image.ParsePlatforms(o.platforms)
	if err != nil {
		return nil, err
	}
	if o.tag == "" {
		o.tag = stamp.Version
	}
	var steps []image.Step
	for _, i := range image.Images() {
		r := image.Request{
			Image: i, Stamp: stamp, Reference: reference(o.registry, i.Name, o.tag), Platforms: platforms,
			Root: root, Context: root, BaseImage: o.base, Push: o.push,
		}
		if o.prebuilt != "" {
			r.Context = o.prebuilt
			r.Prebuilt = true
		}
		steps = append(steps, engine.Build(r)...)
		if o.push {
			steps = append(steps, engine.Push(r, "docker://"+r.Reference)...)
		}
	}
	return steps, nil
}

func reference(registry, name, tag string) string {
	if registry != "" {
		name = strings.TrimSuffix(registry, "/") + "/" + name
	}
	return name + ":" + tag
}

// works reports whether an engine is installed and, where it needs a daemon, has one.
func works(ctx context.Context, name string) bool {
	question := "info"
	if name == "buildah" {
		question = "version"
	}
	return exec.CommandContext(ctx, name, question).Run() == nil
}
