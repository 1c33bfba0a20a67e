package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// Chart is the name of the Helm chart.
const Chart = "phoenixnap-cloud-provider"

// What Helm calls the two parts of a chart in a registry (https://helm.sh/docs/topics/registries/).
const (
	chartConfigType  = "application/vnd.cncf.helm.config.v1+json"
	chartContentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// addChart packs the chart, which gets the version of the release and its images by their digests, as Helm does and as
// an OCI artifact.
func (r Release) addChart(ctx context.Context, published []Published) (Published, error) {
	version := strings.TrimPrefix(r.Stamp.Version, "v")
	p := Published{Image: image.Image{Name: Chart}, Archive: path.Join(chart, Chart+".tar"),
		Reference: r.Registry + "/" + Chart + ":" + version}
	files, err := r.chartFiles(version, published)
	if err != nil {
		return p, err
	}
	packed := filepath.Join(r.Dir, chart, Chart+"-"+version+".tgz")
	if err := r.packFiles(packed, files...); err != nil {
		return p, err
	}
	content, err := os.ReadFile(packed)
	if err != nil {
		return p, err
	}
	config, err := yaml.YAMLToJSON(files[0].content)
	if err != nil {
		return p, err
	}
	archive := filepath.Join(r.Dir, p.Archive)
	if err := r.packArtifact(ctx, p.Reference, config, content, archive); err != nil {
		return p, err
	}
	p.Digest, err = image.Digest(archive)
	return p, err
}

// chartFiles are those of the chart, Chart.yaml first, below a folder that is called like the chart.
func (r Release) chartFiles(version string, published []Published) ([]packed, error) {
	dir := filepath.Join(r.Root, "deploy", "helm", Chart)
	var files []packed
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			content, err = versioned(content, version)
		case "values.yaml":
			content, err = withImages(content, published)
		}
		files = append(files, packed{path.Join(Chart, filepath.ToSlash(name)), 0o644, content})
		return err
	})
	return files, err
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
	// chartImage is where the values name an image of this project.
	chartImage = regexp.MustCompile(`(?m)^( +)repository: phoenixnap/([a-z-]+)\n((?: +(?:#|tag:).*\n)*) +digest: ""$`)
)

// versioned gives a Chart.yaml the version of the release.
func versioned(chart []byte, version string) ([]byte, error) {
	if len(chartVersion.FindAll(chart, -1)) != 1 || len(appVersion.FindAll(chart, -1)) != 1 {
		return nil, errors.New("no single version and appVersion in Chart.yaml")
	}
	chart = chartVersion.ReplaceAll(chart, []byte("version: "+version))
	return appVersion.ReplaceAll(chart, []byte("appVersion: v"+version)), nil
}

// withImages puts the published images into a values.yaml, by their digests.
func withImages(values []byte, published []Published) ([]byte, error) {
	found := 0
	values = chartImage.ReplaceAllFunc(values, func(match []byte) []byte {
		parts := chartImage.FindSubmatch(match)
		for _, p := range published {
			if p.Image.Name == string(parts[2]) {
				found++
				repository := strings.TrimSuffix(p.Reference, ":"+p.Version())
				return fmt.Appendf(nil, "%[1]srepository: %[2]s\n%[3]s%[1]sdigest: %[4]s", parts[1], repository,
					parts[3], p.Digest)
			}
		}
		return match
	})
	if found != len(published) {
		return nil, fmt.Errorf("values.yaml names %d of %d images with an empty digest", found, len(published))
	}
	return values, nil
}

// packArtifact writes an OCI archive with a chart.
func (r Release) packArtifact(ctx context.Context, reference string, config, content []byte, archive string) error {
	made, err := r.made()
	if err != nil {
		return err
	}
	layout, err := os.MkdirTemp("", "pnap-chart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(layout) //nolint:errcheck // a temporary directory
	store, err := oci.NewWithContext(ctx, layout)
	if err != nil {
		return err
	}
	head, err := oras.PushBytes(ctx, store, chartConfigType, config)
	if err != nil {
		return err
	}
	body, err := oras.PushBytes(ctx, store, chartContentType, content)
	if err != nil {
		return err
	}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_0, chartConfigType,
		oras.PackManifestOptions{ConfigDescriptor: &head, Layers: []ocispec.Descriptor{body},
			ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: made.Format(time.RFC3339),
				ocispec.AnnotationSource: site}})
	if err != nil {
		return err
	}
	if err := store.Tag(ctx, manifest, reference); err != nil {
		return err
	}
	return image.PackLayout(layout, archive)
}
