package image

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// BaseVariable is the environment variable that names the base image of what tests and releases build. Without it tests
// take Scratch, which needs no registry, and releases what the Dockerfiles name.
const BaseVariable = "BASE_IMAGE"

// Scratch is the empty base image.
const Scratch = "scratch"

// Builder builds images without a daemon and without a registry, in a store of its own.
type Builder struct {
	// Root is the root of the source tree, Dir a directory for binaries and the store.
	Root, Dir string
	// Stamp is the version that the programs report.
	Stamp Stamp
	// Base is the base image; empty means the Dockerfile's own.
	Base string
	// Tags are the build tags of the binaries, none in what is released.
	Tags []string
	// Log receives what the programs that are called say.
	Log io.Writer
}

// NewBuilder is a builder of the source tree around the working directory, for the state that make reports. What it
// needs of the system is installed.
func NewBuilder(ctx context.Context, dir string, log io.Writer) (*Builder, error) {
	if err := tools.Packages(ctx, "make", "git", "buildah"); err != nil {
		return nil, err
	}
	root, err := tools.ModuleRoot()
	if err != nil {
		return nil, err
	}
	b := &Builder{Root: root, Dir: dir, Base: cmp.Or(os.Getenv(BaseVariable), Scratch), Log: log}
	var out strings.Builder
	if err := b.run(ctx, &out, []string{"make", "-s", "-C", root, "version"}); err != nil {
		return nil, err
	}
	b.Stamp, err = ParseStamp(out.String())
	return b, err
}

// Engine is the builder's own: root or a user with subordinate IDs needs no daemon for it.
func (b *Builder) Engine() Engine {
	return Engine{Name: "buildah", Isolation: "chroot", Global: []string{
		"--root", filepath.Join(b.Dir, "store"), "--runroot", filepath.Join(b.Dir, "run"), "--storage-driver", "vfs",
	}}
}

// Request is what has to be built for an image.
func (b *Builder) Request(i Image, reference string, platforms []Platform) Request {
	return Request{
		Image: i, Stamp: b.Stamp, Reference: reference, Platforms: platforms,
		Root: b.Root, Context: b.binaries(), Prebuilt: true, BaseImage: b.Base,
	}
}

func (b *Builder) binaries() string { return filepath.Join(b.Dir, "bin") }

// Archive builds an image for platforms and writes it to path as an OCI archive, under a reference such as
// example.com/name:v1. Equal sources make an equal archive.
func (b *Builder) Archive(ctx context.Context, i Image, reference, path string, platforms ...Platform) error {
	if err := b.compile(ctx, i, platforms); err != nil {
		return err
	}
	return b.Pack(ctx, b.Request(i, reference, platforms), path)
}

// Pack builds what is requested and writes it to path as an OCI archive.
func (b *Builder) Pack(ctx context.Context, r Request, path string) error {
	engine := b.Engine()
	layout := filepath.Join(b.Dir, "layout", r.Image.Name)
	// buildah adds to a layout that is there.
	if err := errors.Join(os.RemoveAll(layout), os.MkdirAll(filepath.Dir(layout), 0o755)); err != nil {
		return fmt.Errorf("build the image %s: %w", r.Image.Name, err)
	}
	steps := slices.Concat(engine.Build(r), engine.Push(r, "oci:"+layout+":"+r.Reference))
	if err := Do(ctx, steps, b.Log); err != nil {
		return fmt.Errorf("build the image %s: %w", r.Image.Name, err)
	}
	if err := PackLayout(layout, path); err != nil {
		return fmt.Errorf("pack the image %s: %w", r.Image.Name, err)
	}
	return nil
}

// compile makes the binaries as `make build` does.
func (b *Builder) compile(ctx context.Context, i Image, platforms []Platform) error {
	line := slices.Concat([]string{
		"make", "-s", "-C", b.Root, "DIST=" + b.binaries(),
		"VERSION=" + b.Stamp.Version, "COMMIT=" + b.Stamp.Commit, "TAGS=" + strings.Join(b.Tags, ","),
	}, i.Targets(b.binaries(), platforms))
	if err := b.run(ctx, b.Log, line); err != nil {
		return fmt.Errorf("build the binaries of %s: %w", i.Name, err)
	}
	return nil
}

// Remove gives the space of store and binaries back.
func (b *Builder) Remove(ctx context.Context) error {
	engine := b.Engine()
	steps := []Step{{Args: engine.line("rm", "--all")}, {Args: engine.line("rmi", "--all", "--force")}}
	return errors.Join(Do(ctx, steps, b.Log), os.RemoveAll(b.Dir))
}

// Do runs command lines one after the other.
func Do(ctx context.Context, steps []Step, log io.Writer) error {
	for _, s := range steps {
		out := log
		if s.MayFail {
			out = nil
		}
		if err := run(ctx, out, out, s.Args); err != nil && (!s.MayFail || ctx.Err() != nil) {
			return err
		}
	}
	return nil
}

func (b *Builder) run(ctx context.Context, out io.Writer, line []string) error {
	return run(ctx, out, b.Log, line)
}

// run runs a program; what it complained of becomes the error's text.
func run(ctx context.Context, out, log io.Writer, line []string) error {
	var complaint strings.Builder
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout = out
	cmd.Stderr = io.Writer(&complaint)
	if log != nil {
		cmd.Stderr = io.MultiWriter(log, &complaint)
	}
	// Tests run under make, whose options are not meant for the make that they call.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MAKELEVEL=") ||
			strings.HasPrefix(v, "MFLAGS=")
	})
	if err := subprocess.Run(cmd); err != nil {
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return fmt.Errorf("%s: %w: %s", strings.Join(line, " "), err, strings.Join(lines[max(0, len(lines)-5):], "; "))
	}
	return nil
}

// PackLayout writes an OCI layout as an archive: the files in the order of their names and without a time, so that
// equal layouts make equal archives.
func PackLayout(layout, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	archive := tar.NewWriter(buffered)
	err = filepath.WalkDir(layout, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(layout, path)
		if err != nil {
			return err
		}
		return packFile(archive, path, filepath.ToSlash(name))
	})
	return errors.Join(err, archive.Close(), buffered.Flush(), file.Close())
}

func packFile(archive *tar.Writer, path, name string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
		Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}

// Digest is what a registry calls the image of an OCI archive once it is pushed: the digest of the index of all
// platforms (OCI image specification, image-layout.md).
func Digest(archive string) (string, error) {
	_, digest, err := Describe(archive)
	return digest, err
}

// Describe returns the reference that an OCI archive carries, and its Digest.
func Describe(archive string) (reference, digest string, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			return "", "", fmt.Errorf("OCI archive %s: index.json: %w", archive, err)
		}
		if filepath.Base(h.Name) != "index.json" {
			continue
		}
		var index ocispec.Index
		if err := json.NewDecoder(r).Decode(&index); err != nil {
			return "", "", fmt.Errorf("OCI archive %s: index.json: %w", archive, err)
		}
		if len(index.Manifests) != 1 {
			return "", "", fmt.Errorf("OCI archive %s: it holds %d images, want one", archive, len(index.Manifests))
		}
		only := index.Manifests[0]
		return only.Annotations[ocispec.AnnotationRefName], only.Digest.String(), nil
	}
}
