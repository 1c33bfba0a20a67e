// Package release puts together what a release publishes: programs, images, manifests, lists of their parts, checksums.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// Release is a directory with all that is published.
type Release struct {
	// Root is the root of the source tree, Dir the directory.
	Root, Dir string
	// Programs is the directory with the programs, as `make build` made them.
	Programs string
	// Registry is where the images are published, such as docker.io/phoenixnap.
	Registry string
	Stamp    image.Stamp
}

// Published is an image of a release.
type Published struct {
	Image image.Image
	// Archive is its file below the directory, Reference the name that it gets, Digest what a registry calls it then.
	Archive, Reference, Digest string
}

// Names of the parts of the directory.
const (
	programs  = "bin"
	images    = "images"
	manifests = "manifests"
	parts     = "sbom"
	checksums = "SHA256SUMS"
)

// shipped are the programs that are published, by the beginning of their names; the rest is for tests.
var shipped = []string{image.Controller + "-", image.Agent + "-", "kubectl-pnap-"}

// Assemble clears and fills the directory and returns the images.
func (r Release) Assemble(ctx context.Context, builder *image.Builder) ([]Published, error) {
	if err := errors.Join(os.RemoveAll(r.Dir), os.MkdirAll(r.Dir, 0o755)); err != nil {
		return nil, fmt.Errorf("begin the release: %w", err)
	}
	if err := r.addPrograms(); err != nil {
		return nil, fmt.Errorf("programs of the release: %w", err)
	}
	published, err := r.addImages(ctx, builder)
	if err != nil {
		return nil, err
	}
	if err := r.addManifests(published); err != nil {
		return nil, fmt.Errorf("manifests of the release: %w", err)
	}
	return published, r.sum()
}

// addPrograms copies the programs, and lists what each is made of.
func (r Release) addPrograms() error {
	seconds, err := strconv.ParseInt(r.Stamp.Epoch, 10, 64)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(r.Programs)
	if err != nil {
		return err
	}
	added := 0
	for _, e := range entries {
		if !slices.ContainsFunc(shipped, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }) {
			continue
		}
		added++
		source := filepath.Join(r.Programs, e.Name())
		if err := copyFile(source, filepath.Join(r.Dir, programs, e.Name()), 0o755); err != nil {
			return err
		}
		list := filepath.Join(r.Dir, parts, e.Name()+".cdx.json")
		if err := writeFile(list, 0o644, func(w io.Writer) error {
			return partsOf(source, r.Stamp.Version, time.Unix(seconds, 0), w)
		}); err != nil {
			return err
		}
	}
	if added == 0 {
		return fmt.Errorf("%s holds none: run make build", r.Programs)
	}
	return nil
}

// besides are the manifests that users need beside an overlay: file of the release → path below the root.
func besides() map[string]string {
	return map[string]string{"secret.yaml": "deploy/template/secret.yaml",
		"kube-vip.yaml": "deploy/kube-vip/kube-vip.yaml"}
}

// addManifests writes what users apply, one file for each overlay, with the images of this release by their digests.
func (r Release) addManifests(published []Published) error {
	for name, path := range besides() {
		if err := copyFile(filepath.Join(r.Root, filepath.FromSlash(path)), filepath.Join(r.Dir, manifests, name),
			0o644); err != nil {
			return err
		}
	}
	overlays, err := deploy.Overlays(r.Root)
	if err != nil {
		return err
	}
	for _, overlay := range overlays {
		text, err := os.ReadFile(deploy.Rendered(r.Root, overlay))
		if err != nil {
			return err
		}
		if text, err = pin(text, published); err != nil {
			return fmt.Errorf("overlay %s: %w", overlay, err)
		}
		if err := writeFile(filepath.Join(r.Dir, manifests, overlay, deploy.File), 0o644, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// imageLine is where a rendered manifest names an image of this project.
var imageLine = regexp.MustCompile(`(?m)^(\s*(?:- )?image: )phoenixnap/([a-z-]+):\S+$`)

// pin puts the published images in the place of those that the manifest names: that of the controller, and that of the
// agents where there is a DaemonSet.
func pin(manifest []byte, published []Published) ([]byte, error) {
	found := map[string]bool{}
	pinned := imageLine.ReplaceAllFunc(manifest, func(line []byte) []byte {
		parts := imageLine.FindSubmatch(line)
		for _, p := range published {
			if p.Image.Name == string(parts[2]) {
				found[p.Image.Name] = true
				return fmt.Appendf(nil, "%s%s@%s", parts[1], p.Reference, p.Digest)
			}
		}
		return line
	})
	agents := bytes.Contains(manifest, []byte("\nkind: DaemonSet\n"))
	for _, p := range published {
		if !found[p.Image.Name] && (agents || p.Image.Name != image.Agent) {
			return nil, fmt.Errorf("it names no image phoenixnap/%s", p.Image.Name)
		}
	}
	return pinned, nil
}

// addImages builds the images for all platforms.
func (r Release) addImages(ctx context.Context, builder *image.Builder) ([]Published, error) {
	var all []Published
	for _, i := range image.Images() {
		p := Published{Image: i, Archive: filepath.Join(images, i.Name+".tar"),
			Reference: r.Registry + "/" + i.Name + ":" + r.Stamp.Version}
		path := filepath.Join(r.Dir, p.Archive)
		if err := builder.Archive(ctx, i, p.Reference, path, image.Platforms()...); err != nil {
			return nil, err
		}
		var err error
		if p.Digest, err = image.Digest(path); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// sum writes the checksums of all files, in the form that sha256sum --check reads.
func (r Release) sum() error {
	return writeFile(filepath.Join(r.Dir, checksums), 0o644, func(w io.Writer) error {
		return filepath.WalkDir(r.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || e.Name() == checksums {
				return err
			}
			name, err := filepath.Rel(r.Dir, path)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(content), filepath.ToSlash(name))
			return err
		})
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func writeFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}

// Report prints each image with its digest and whether that was tested end to end. The error names images that were
// not.
func Report(published []Published, tested func(digest string) (bool, error), out io.Writer) error {
	var untested []error
	for _, p := range published {
		ok, err := tested(p.Digest)
		if err != nil {
			return err
		}
		word := "tested"
		if !ok {
			word = "NOT TESTED"
			untested = append(untested,
				fmt.Errorf("%s (%s) has not passed the end-to-end test on this machine: run make e2e on the same "+
					"sources", p.Reference, p.Digest))
		}
		fmt.Fprintf(out, "%s@%s %s\n", p.Reference, p.Digest, word)
	}
	return errors.Join(untested...)
}

// Publish are the command lines that bring the images to their registry. The digests are kept: what is pulled is, byte
// by byte, what was tested.
func (r Release) Publish(published []Published) []image.Step {
	var steps []image.Step
	for _, p := range published {
		steps = append(steps, image.Step{Args: []string{
			"skopeo", "copy", "--all", "--preserve-digests", "oci-archive:" + filepath.Join(r.Dir, p.Archive),
			"docker://" + p.Reference,
		}})
	}
	return steps
}

// partsOf writes what a Go program is made of, as it says itself (go version -m), as a bill of materials in CycloneDX.
// The time is the sources', so that equal programs have equal bills.
func partsOf(program, version string, made time.Time, to io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	encoder := cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(bill(info, version, made)); err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	return nil
}

// bill lists the modules of a program and the Go toolchain, whose library is a part like any other.
func bill(info *buildinfo.BuildInfo, version string, made time.Time) *cdx.BOM {
	parts := []cdx.Component{component("stdlib", info.GoVersion)}
	for _, module := range info.Deps {
		for module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, component(module.Path, module.Version))
	}
	references := make([]string, 0, len(parts))
	for _, p := range parts {
		references = append(references, p.BOMRef)
	}
	subject := component(info.Main.Path, version)
	subject.Type = cdx.ComponentTypeApplication
	subject.Name = info.Path
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: made.UTC().Format(time.RFC3339), Component: &subject}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &references}}
	return bom
}

// component names a module by its package URL (https://github.com/package-url/purl-spec, type golang).
func component(module, version string) cdx.Component {
	url := "pkg:golang/" + module + "@" + version
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url}
}
