//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/e2e/node"
)

// Names of images. Those of the project are what the manifests say.
const (
	registry = "phoenixnap"
	// hub is the registry of names that name none, by which containerd knows them.
	hub          = "docker.io/"
	kubeVIPImage = "ghcr.io/kube-vip/kube-vip:v1.2.2"
	webImage     = "local.test/web:e2e"
	// newerTag is the tag of the images that the cluster is upgraded to.
	newerTag = "v9.9.9"
)

// releaseVariable is the environment variable that names a directory in which make release has put a release together.
// The test installs its images, manifests and chart then, and builds none of them itself.
const releaseVariable = "PNAP_RELEASE"

// archives are the images of the cluster as files of this machine, by the name of the file.
type archives struct {
	dir string
	// release is the directory with the release that is tested; empty if the images are built here.
	release string
	// first are there before the kubelet starts; newer comes with the upgrade.
	first, newer []string
	// shipped are the images of the project that are installed first: name → reference and digest.
	shipped map[string]shipped
	// more are more names of the images: name → reference.
	more map[string]string
}

// shipped is an image of the project: its reference, and what a registry would call it.
type shipped struct{ reference, digest string }

// tagAndDigest is how the manifests of a release name the image.
func (s shipped) tagAndDigest() string { return s.reference + "@" + s.digest }

// byDigest is how the chart of a release names the image, and containerd, which drops the tag, also that of a manifest.
func (s shipped) byDigest() string {
	return s.reference[:strings.LastIndex(s.reference, ":")] + "@" + s.digest
}

// buildImages builds the images of the project with the tags that the manifests name, or takes those of a release, and
// builds those of a newer version and those that a cluster takes from elsewhere.
func buildImages(t *testing.T, dir, shippedTag string, judged bool) *archives {
	t.Helper()
	builder, err := image.NewBuilder(t.Context(), filepath.Join(dir, "build"), io.Discard)
	check(t, err)
	t.Cleanup(func() { check(t, builder.Remove(context.WithoutCancel(t.Context()))) })
	all := &archives{dir: filepath.Join(dir, "images"), release: os.Getenv(releaseVariable),
		shipped: map[string]shipped{}, more: map[string]string{}}
	if all.release == "" {
		// All nodes share an emulated machine, in which an agent may wait for a processor for longer than three usual
		// heartbeats take. Agents with different intervals must not meet, so what a release is upgraded to has its.
		builder.Tags = []string{"slowheartbeats"}
	}
	for _, i := range image.Images() {
		all.shipped[i.Name] = shipped{}
		all.first = append(all.first, i.Name+".tar")
		archive := all.path(i.Name + ".tar")
		if all.release == "" {
			// as a release does
			check(t, builder.Archive(t.Context(), i, hub+registry+"/"+i.Name+":"+shippedTag, archive,
				image.Platforms()...))
		}
		reference, digest, err := image.Describe(archive)
		check(t, err)
		all.shipped[i.Name] = shipped{reference, digest}
	}
	for reference, program := range map[string]func() (string, error){
		node.PauseImage: func() (string, error) { return tools.Product(t.Context(), "./test/scenario/e2e/cmd/pause") },
		webImage:        func() (string, error) { return tools.Product(t.Context(), "./test/env/cluster/cmd/backend") },
		kubeVIPImage:    func() (string, error) { return tools.KubeVIP(t.Context(), "") },
	} {
		path, err := program()
		check(t, err)
		all.first = append(all.first, all.pack(t, builder, reference, path))
	}
	if judged {
		all.packJudges(t, builder)
		return all
	}
	builder.Stamp.Version = newerTag
	for _, i := range image.Images() {
		all.newer = append(all.newer, i.Name+"-newer.tar")
		check(t, builder.Archive(t.Context(), i, hub+registry+"/"+i.Name+":"+newerTag,
			filepath.Join(all.dir, i.Name+"-newer.tar"), image.Platforms()[0]))
	}
	return all
}

// pack puts one program into an image of its own and returns the name of the archive.
func (a *archives) pack(t *testing.T, b *image.Builder, reference, program string) string {
	t.Helper()
	name := filepath.Base(filepath.Dir(reference)) + "-" + filepath.Base(program)
	contents := filepath.Join(b.Dir, "program-"+name)
	check(t, os.MkdirAll(contents, 0o755))
	check(t, os.Link(program, filepath.Join(contents, "program")))
	r := b.Request(image.Image{Name: name, Dockerfile: "test/scenario/e2e/Dockerfile.program"}, reference,
		image.Platforms()[:1])
	r.Context = contents
	check(t, b.Pack(t.Context(), r, filepath.Join(a.dir, name+".tar")))
	return name + ".tar"
}

// files are the archives for the lab: below the tree of the nodes, where they appear as node.Images.
func (a *archives) files(tree string) map[string]string {
	files := map[string]string{}
	for _, name := range append(append([]string{}, a.first...), a.newer...) {
		files[tree+node.Images+"/"+name] = a.path(name)
	}
	return files
}

// path is where an archive is on this machine: with the release, if it is a part of one.
func (a *archives) path(name string) string {
	if _, ours := a.shipped[strings.TrimSuffix(name, ".tar")]; ours && a.release != "" {
		return filepath.Join(a.release, "images", name)
	}
	return filepath.Join(a.dir, name)
}

// names are more names of the images, beside those that the archives carry, such as those that the manifests of a
// release give to its own.
func (a *archives) names() map[string]string {
	names := maps.Clone(a.more)
	if a.release != "" {
		for _, s := range a.shipped {
			names[s.byDigest()] = s.reference
		}
	}
	return names
}

// onNode are archives as containerd finds them.
func onNode(names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, node.Images+"/"+name)
	}
	return paths
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// figure prints a figure; those with the agents' announcer have a name of their own.
func (s *site) figure(name string, value float64, unit string) {
	s.Helper()
	if s.announcer == contract.AnnouncerAgent {
		name = "agent_" + name
	}
	s.Logf("figure e2e_%s %s %s", name, fmt.Sprintf("%.2f", value), unit)
}
