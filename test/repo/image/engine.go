package image

import (
	"fmt"
	"slices"
	"strings"
)

// Engine is a program that builds images.
type Engine struct {
	// Name is docker, podman or buildah.
	Name string
	// Global are its options before the command.
	Global []string
	// Isolation is buildah's way to run the commands of a Dockerfile; empty means its default.
	Isolation string
}

// EngineNames are the engines that are understood, the one that is preferred first.
func EngineNames() []string { return []string{"docker", "podman", "buildah"} }

// Request is an image to be built.
type Request struct {
	Image Image
	Stamp Stamp
	// Reference is the name with its tag that the image gets in the engine's store.
	Reference string
	Platforms []Platform
	// Context is the directory that the Dockerfile copies from: the source tree, or where the binaries are.
	Context string
	// Root is the root of the source tree, where the Dockerfile is.
	Root string
	// Prebuilt reports that the context holds binaries, so that nothing is compiled in a container.
	Prebuilt bool
	// BaseImage and GoImage replace the Dockerfile's own choice; empty means that.
	BaseImage, GoImage string
	// Push has docker, which does both at once, push what it builds.
	Push bool
}

// Step is one command line of an engine. A step that may fail tidies up what need not be there.
type Step struct {
	Args    []string
	MayFail bool
}

// Build returns the command lines that build a request.
func (e Engine) Build(r Request) []Step {
	arguments := append([]string{"--file", r.Root + "/" + r.Image.Dockerfile}, r.buildArguments()...)
	if e.Name == "docker" {
		where := "--load"
		if r.Push {
			where = "--push"
		}
		// Attestations would differ from build to build; the release writes its own list of parts.
		line := slices.Concat([]string{"buildx", "build", "--tag", r.Reference, "--provenance=false", "--sbom=false",
			"--build-arg", "SOURCE_DATE_EPOCH=" + r.Stamp.Epoch, where}, arguments)
		return []Step{{Args: e.line(append(line, "--platform", joined(r.Platforms), r.Context)...)}}
	}
	line := []string{"build", "--manifest", r.Reference, "--timestamp", r.Stamp.Epoch, "--identity-label=false"}
	if e.Isolation != "" {
		line = append(line, "--isolation", e.Isolation)
	}
	// A list of that name would get the new images in addition.
	steps := []Step{{Args: e.line("manifest", "rm", r.Reference), MayFail: true}}
	// One platform after the other: together they get into the list in the order in which they happen to be ready.
	for _, p := range r.Platforms {
		steps = append(steps,
			Step{Args: e.line(slices.Concat(line, arguments, []string{"--platform", p.String(), r.Context})...)})
	}
	return steps
}

// Push returns the command lines that bring a built image to a destination of containers-transports(5), such as
// docker://<reference> or oci-archive:<path>.
func (e Engine) Push(r Request, destination string) []Step {
	if e.Name == "docker" {
		return nil // it has been pushed by its build
	}
	return []Step{{Args: e.line("manifest", "push", "--all", r.Reference, destination)}}
}

func (e Engine) line(args ...string) []string {
	return slices.Concat([]string{e.Name}, e.Global, args)
}

func (r Request) buildArguments() []string {
	var arguments []string
	add := func(name, value string) {
		if value != "" {
			arguments = append(arguments, "--build-arg", name+"="+value)
		}
	}
	add("VERSION", r.Stamp.Version)
	add("COMMIT", r.Stamp.Commit)
	add("BASE_IMAGE", r.BaseImage)
	add("GO_IMAGE", r.GoImage)
	if r.Prebuilt {
		add("BINARY", "prebuilt")
	}
	return arguments
}

func joined(platforms []Platform) string {
	names := make([]string, 0, len(platforms))
	for _, p := range platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

// Choose returns the first engine that works, or the one that is asked for.
func Choose(asked string, works func(name string) bool) (Engine, error) {
	names := EngineNames()
	if asked != "" {
		if !slices.Contains(names, asked) {
			return Engine{}, fmt.Errorf("engine %q: choose among %s", asked, strings.Join(names, ", "))
		}
		names = []string{asked}
	}
	for _, name := range names {
		if works(name) {
			return Engine{Name: name}, nil
		}
	}
	return Engine{},
		fmt.Errorf("none of %s works here: install one (on Debian: apt-get install buildah), or start its daemon",
			strings.Join(names, ", "))
}
