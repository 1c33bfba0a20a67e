package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// newBuilder is a builder that gives its space back.
func newBuilder(t *testing.T) *Builder {
	t.Helper()
	// Not below t.TempDir: the store of an engine holds what only the engine removes.
	dir, err := os.MkdirTemp("", "pnap-images-")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBuilder(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

func archive(t *testing.T, b *Builder, i Image, platforms ...Platform) *Archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), i.Name+".tar")
	if err := b.Archive(t.Context(), i, "example.com/"+i.Name+":test", path, platforms...); err != nil {
		t.Fatal(err)
	}
	a, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := Digest(path); err != nil || digest != a.Digest {
		t.Errorf("digest %s (%v), want %s", digest, err, a.Digest)
	}
	return a
}

// TestImages builds both images for all platforms, from nothing, and checks everything in them. Then it builds them
// for one platform again, in another place, from the linker on: the result is the same.
func TestImages(t *testing.T) {
	b := newBuilder(t)
	again := newBuilder(t)
	again.Stamp = b.Stamp // others may commit meanwhile
	for _, i := range Images() {
		a := archive(t, b, i, Platforms()...)
		if want := "example.com/" + i.Name + ":test"; a.Reference != want {
			t.Errorf("the archive carries the name %s, want %s", a.Reference, want)
		}
		if len(a.Variants) != len(Platforms()) {
			t.Fatalf("%s: %d platforms, want %v", i.Name, len(a.Variants), Platforms())
		}
		for n, v := range a.Variants {
			if v.Config.Platform != Platforms()[n] {
				t.Errorf("%s: platform %v, want %v", i.Name, v.Config.Platform, Platforms()[n])
			}
			checkConfig(t, i, b.Stamp, v.Config)
			checkFiles(t, a, i, v)
		}
		if got := start(t, a, i); !strings.Contains(got, b.Stamp.Version) {
			t.Errorf("%s --version out of its image prints %q, want %s", i.Program, got, b.Stamp.Version)
		}
		if other := archive(t, again, i, Platforms()[0]); other.Variants[0].Digest != a.Variants[0].Digest {
			t.Errorf("%s: two builds of the same sources are %s and %s", i.Name, a.Variants[0].Digest,
				other.Variants[0].Digest)
		}
	}
}

func checkConfig(t *testing.T, i Image, stamp Stamp, c Config) {
	t.Helper()
	if want := map[string]string{Controller: "65532:65532", Agent: "0:0"}[i.Name]; c.Config.User != want {
		t.Errorf("%s runs as %q, want %q", i.Name, c.Config.User, want)
	}
	if diff := cmp.Diff([]string{"/" + i.Program}, c.Config.Entrypoint); diff != "" || len(c.Config.Cmd) != 0 {
		t.Errorf("%s: entry point (-want +got):\n%s, command %v", i.Name, diff, c.Config.Cmd)
	}
	for _, name := range []string{"title", "description", "source", "licenses", "version", "revision"} {
		if c.Config.Labels["org.opencontainers.image."+name] == "" {
			t.Errorf("%s has no label %s: %v", i.Name, name, c.Config.Labels)
		}
	}
	if got := c.Config.Labels["org.opencontainers.image.version"]; got != stamp.Version {
		t.Errorf("%s is labelled %s, want %s", i.Name, got, stamp.Version)
	}
}

// checkFiles expects the program, and the certificate authorities of the one that calls the phoenixNAP API.
func checkFiles(t *testing.T, a *Archive, i Image, v Variant) {
	t.Helper()
	want := map[string]string{i.Program: "-rwxr-xr-x", "third-party-licenses.txt": "-rw-r--r--"}
	if i.Name == Controller {
		want["etc/ssl/certs/ca-certificates.crt"] = "-rw-r--r--"
	}
	got := map[string]string{}
	for _, f := range v.Files {
		got[f.Name] = f.Mode.String()
		if f.UID != 0 || f.GID != 0 {
			t.Errorf("%s: %s belongs to %d:%d, want root", i.Name, f.Name, f.UID, f.GID)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files of %s (-want +got):\n%s", i.Name, diff)
	}
	checkProgram(t, v.Config.Architecture, filepath.Join(extract(t, a, v), i.Program))
}

// extract returns a directory that holds the files of an image.
func extract(t *testing.T, a *Archive, v Variant) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range v.Files {
		to := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, f.Mode.Perm())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Extract(f, out), out.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkProgram expects a static program for that architecture that names no directory of the machine it was built on.
func checkProgram(t *testing.T, architecture, path string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close() //nolint:errcheck // it was read
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64,
		"arm64": elf.EM_AARCH64}[architecture]; program.Machine != want {
		t.Errorf("the program for %s is made for %s", architecture, program.Machine)
	}
	if !tools.IsStatic(path) {
		t.Errorf("the program for %s needs a dynamic loader", architecture)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root, err := tools.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), root+"/") {
		t.Errorf("the program for %s names the directory of its sources", architecture)
	}
}

// start runs the program of an image as the user of the image, with nothing but the files of the image. It does not use
// `buildah run`, which copies itself into a memfd and fails if the kernel cannot seal that, because something else
// holds one of its pages at that moment (fcntl(2), F_ADD_SEALS: EBUSY).
func start(t *testing.T, a *Archive, i Image) string {
	t.Helper()
	n := slices.IndexFunc(a.Variants, func(v Variant) bool { return v.Config.Architecture == runtime.GOARCH })
	if n < 0 {
		t.Fatalf("%s has no platform for %s", i.Name, runtime.GOARCH)
	}
	uid, gid, _ := strings.Cut(a.Variants[n].Config.Config.User, ":")
	as := []string{"--setgid=" + gid, "--setuid=" + uid}
	if os.Geteuid() != 0 {
		as = []string{"--map-group=" + gid, "--map-user=" + uid}
	}
	line := slices.Concat([]string{"unshare", "--root=" + extract(t, a, a.Variants[n])}, as,
		a.Variants[n].Config.Config.Entrypoint, []string{"--version"})
	var out strings.Builder
	if err := run(t.Context(), &out, io.Discard, line); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestPack packs the same files with other times, in another order.
func TestPack(t *testing.T) {
	var archives [2][]byte
	for n, names := range [][]string{{"index.json", "blobs/sha256/a"}, {"blobs/sha256/a", "index.json"}} {
		layout := t.TempDir()
		path := filepath.Join(t.TempDir(), "a.tar")
		for _, name := range names {
			file := filepath.Join(layout, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name), 0o600),
				os.Chtimes(file, time.Time{}, time.Unix(int64(n), 0))); err != nil {
				t.Fatal(err)
			}
		}
		if err := PackLayout(layout, path); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[n], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) || !bytes.Contains(archives[0], []byte("blobs/sha256/a")) {
		t.Error("two archives of the same files differ")
	}
}

// TestDockerfiles checks what no build without a registry can: the way that compiles in a container.
func TestDockerfiles(t *testing.T) {
	root, err := tools.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	// One base image for both, which is that of releases, too.
	base := regexp.MustCompile(`(?m)^ARG BASE_IMAGE=\S+@sha256:[0-9a-f]{64}$`).FindString(read(Images()[0].Dockerfile))
	if base == "" {
		t.Errorf("%s names no base image by digest", Images()[0].Dockerfile)
	}
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))[1]
	for _, i := range Images() {
		text := read(i.Dockerfile)
		for _, want := range []string{
			"ARG GO_IMAGE=docker.io/library/golang:" + minor + "@sha256:", base, "RUN --mount=type=cache,target=/go/pkg/mod ",
			"FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build", "ENTRYPOINT [\"/" + i.Program + "\"]",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", i.Dockerfile, want)
			}
		}
		for _, file := range append([]string{i.Program + "-$TARGETOS-$TARGETARCH"}, i.Files...) {
			if !strings.Contains(text, "/out/"+file) {
				t.Errorf("%s does not make %s", i.Dockerfile, file)
			}
		}
	}
	checkContext(t, root, read(".dockerignore"))
}

// checkContext expects .dockerignore to let through all that a build of the two programs reads.
func checkContext(t *testing.T, root, ignore string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		"./agent", "./controller")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	// The licenses are collected by the one package of test that a build needs.
	needed := map[string]bool{"Makefile": true, "go.mod": true, "go.sum": true, "test/repo/licenses": true}
	for name := range strings.FieldsSeq(string(out)) {
		if below, ours := strings.CutPrefix(name, "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/"); ours {
			top, _, _ := strings.Cut(below, "/")
			needed[top] = true
		}
	}
	for name := range needed {
		if !slices.Contains(strings.Fields(ignore), "!"+name) {
			t.Errorf(".dockerignore keeps %s from a build that needs it", name)
		}
	}
}

// Extract writes the contents of a file of a variant.
func (a *Archive) Extract(f File, to io.Writer) error {
	found := false
	err := a.walk(f.Blob, func(h *tar.Header, r io.Reader) (bool, error) {
		if path.Clean(strings.TrimPrefix(h.Name, "/")) != f.Name {
			return true, nil
		}
		found = true
		_, err := io.Copy(to, r)
		return false, err
	})
	if err == nil && !found {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("extract %s of %s: %w", f.Name, a.path, err)
	}
	return nil
}
