// Package image builds the container images of the two programs from their Dockerfiles, and reads what is in them.
package image

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Image is a container image of this project.
type Image struct {
	// Name is the last part of the image's name in a registry.
	Name string
	// Dockerfile is its recipe, below the root of the source tree.
	Dockerfile string
	// Program is the binary that the image runs, as `make build` names it without its platform.
	Program string
	// Files are what a build of it needs besides the program, as make knows them below DIST.
	Files []string
}

// Images are all images of this project.
func Images() []Image {
	return []Image{
		{Name: Controller, Dockerfile: "Dockerfile.controller", Program: "phoenixnap-cloud-controller-manager",
			Files: []string{"third-party-licenses.txt", "ca-certificates.crt"}},
		{Name: Agent, Dockerfile: "Dockerfile.agent", Program: "phoenixnap-agent",
			Files: []string{"third-party-licenses.txt"}},
	}
}

// Names of the images.
const (
	Controller = "phoenixnap-cloud-controller-manager"
	Agent      = "phoenixnap-agent"
)

// Platform is an operating system and an architecture, as Go and OCI name them, such as linux/arm64.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

// String is how container engines write a platform.
func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// Platforms are those that images are published for.
func Platforms() []Platform { return []Platform{{"linux", "amd64"}, {"linux", "arm64"}} }

// ParsePlatforms reads platforms separated by commas, such as linux/amd64,linux/arm64.
func ParsePlatforms(list string) ([]Platform, error) {
	var platforms []Platform
	for text := range strings.SplitSeq(list, ",") {
		system, architecture, ok := strings.Cut(strings.TrimSpace(text), "/")
		p := Platform{OS: system, Architecture: architecture}
		if !ok || !slices.Contains(Platforms(), p) {
			return nil, fmt.Errorf("platform %q: choose among %v", text, Platforms())
		}
		platforms = append(platforms, p)
	}
	return platforms, nil
}

// Targets are the files below a directory that `make DIST=<directory>` makes for the image on those platforms.
func (i Image) Targets(directory string, platforms []Platform) []string {
	var targets []string
	for _, p := range platforms {
		targets = append(targets, fmt.Sprintf("%s/%s-%s-%s", directory, i.Program, p.OS, p.Architecture))
	}
	for _, file := range i.Files {
		targets = append(targets, directory+"/"+file)
	}
	return targets
}

// Stamp identifies the state of the sources that something was made of.
type Stamp struct {
	// Version is the version as git describes it, Commit the commit's hash.
	Version, Commit string
	// Epoch is the time that stands on every file, in seconds since 1970, as text.
	Epoch string
}

// errStamp describes the format of Stamp's text.
var errStamp = errors.New("want version, commit and time, as `make version` prints them")

// ParseStamp reads what `make version` prints.
func ParseStamp(text string) (Stamp, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 || !strings.HasPrefix(fields[0], "v") || strings.Trim(fields[2], "0123456789") != "" {
		return Stamp{}, fmt.Errorf("stamp %q: %w", text, errStamp)
	}
	return Stamp{Version: fields[0], Commit: fields[1], Epoch: fields[2]}, nil
}
