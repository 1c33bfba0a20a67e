// Package release puts together what a release publishes: programs, plugin, images, manifests, chart, lists of their
// parts with licenses, and checksums. It publishes what has passed the end-to-end test.
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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/licenses"
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

// Published is an image of a release, or its chart.
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
	plugin    = "plugin"
	chart     = "chart"
	// thirdParty has the licenses of what the programs are made of.
	thirdParty = "third-party-licenses.txt"
)

// site is where the project is.
const site = "https://github.com/phoenixnap/k8s-cloud-provider-bmc"

const (
	// Downloads is where GitHub serves the files of releases: below it come the version and the name of the file.
	Downloads = site + "/releases/download/"
	// Registry is where images and chart are published unless the user of make release says otherwise.
	Registry = "docker.io/phoenixnap"
)

// Version is the version that the reference names.
func (p Published) Version() string { return p.Reference[strings.LastIndex(p.Reference, ":")+1:] }

// made is the time of the sources, which is the time of everything that is made of them.
func (r Release) made() (time.Time, error) {
	seconds, err := strconv.ParseInt(r.Stamp.Epoch, 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// shipped are the programs that are published, by the beginning of their names; the rest is for tests.
var shipped = []string{image.Controller + "-", image.Agent + "-", "kubectl-pnap-"}

// Assemble clears and fills the directory and returns the images, then the chart.
func (r Release) Assemble(ctx context.Context, builder *image.Builder) ([]Published, error) {
	if err := errors.Join(os.RemoveAll(r.Dir), os.RemoveAll(r.Tested()), os.MkdirAll(r.Dir, 0o755)); err != nil {
		return nil, fmt.Errorf("begin the release: %w", err)
	}
	if err := r.addPrograms(ctx); err != nil {
		return nil, fmt.Errorf("programs of the release: %w", err)
	}
	published, err := r.addImages(ctx, builder)
	if err != nil {
		return nil, err
	}
	if err := r.addManifests(published); err != nil {
		return nil, fmt.Errorf("manifests of the release: %w", err)
	}
	chart, err := r.addChart(ctx, published)
	if err != nil {
		return nil, fmt.Errorf("chart of the release: %w", err)
	}
	return append(published, chart), r.sum()
}

// addPrograms copies the programs, and lists what each is made of and under which licenses.
func (r Release) addPrograms(ctx context.Context) error {
	contained, err := licenses.Parts(ctx, r.Root)
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
		if err := r.addProgram(e.Name(), contained); err != nil {
			return err
		}
	}
	if added == 0 {
		return fmt.Errorf("%s holds none: run make build", r.Programs)
	}
	if err := writeFile(filepath.Join(r.Dir, thirdParty), 0o644, func(w io.Writer) error {
		return licenses.Write(w, contained)
	}); err != nil {
		return err
	}
	return r.addPlugin(contained)
}

// addProgram copies a program and writes its bill of materials.
func (r Release) addProgram(name string, contained []licenses.Part) error {
	source := filepath.Join(r.Programs, name)
	if err := copyFile(source, filepath.Join(r.Dir, programs, name), 0o755); err != nil {
		return err
	}
	made, err := r.made()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.Dir, parts, name+".cdx.json"), 0o644, func(w io.Writer) error {
		return partsOf(source, r.Stamp.Version, made, contained, w)
	})
}

// besides are the manifests that users need beside an overlay: file of the release → path below the root.
func besides() map[string]string {
	return map[string]string{"crds.yaml": deploy.Definitions, "secret.yaml": "deploy/template/secret.yaml",
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

// sum writes the checksums of all files.
func (r Release) sum() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Dir, checksums), []byte(sums), 0o644)
}

// sums are the checksums of all files, in the form that sha256sum --check reads.
func (r Release) sums() (string, error) {
	var sums strings.Builder
	err := filepath.WalkDir(r.Dir, func(path string, e fs.DirEntry, err error) error {
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
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), filepath.ToSlash(name))
		return nil
	})
	return sums.String(), err
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

// partsOf writes what a Go program is made of, as it says itself (go version -m), as a bill of materials in CycloneDX.
// The time is the sources', so that equal programs have equal bills.
func partsOf(program, version string, made time.Time, contained []licenses.Part, to io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	list, err := bill(info, version, made, contained)
	if err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	if err := cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetPretty(true).Encode(list); err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	return nil
}

// bill lists the modules of a program and the Go toolchain, whose library is a part like any other.
func bill(info *buildinfo.BuildInfo, version string, made time.Time, contained []licenses.Part) (*cdx.BOM, error) {
	var parts []cdx.Component
	var references []string
	add := func(path, version string) error {
		at := slices.IndexFunc(contained, func(p licenses.Part) bool { return p.Path == path && p.Version == version })
		if at < 0 {
			return fmt.Errorf("%s@%s has no known license", path, version)
		}
		part := component(path, version, contained[at].License)
		part.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeDistribution, URL: contained[at].Source}}
		parts = append(parts, part)
		references = append(references, part.BOMRef)
		return nil
	}
	err := add(licenses.Standard, info.GoVersion)
	for _, module := range info.Deps {
		for module.Replace != nil {
			module = module.Replace
		}
		err = errors.Join(err, add(module.Path, module.Version))
	}
	subject := component(info.Main.Path, version, "Apache-2.0")
	subject.Type = cdx.ComponentTypeApplication
	subject.Name = info.Path
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: made.UTC().Format(time.RFC3339), Component: &subject}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &references}}
	return bom, err
}

// component names a module by its package URL (https://github.com/package-url/purl-spec, type golang).
func component(module, version, license string) cdx.Component {
	url := "pkg:golang/" + module + "@" + version
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url,
		Licenses: &cdx.Licenses{{Expression: license}}}
}
