package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// unpack returns the files of a compressed archive with their contents, and expects the time of the sources on each.
func unpack(t *testing.T, r Release, name string) map[string]string {
	t.Helper()
	made, err := r.made()
	must(t, err)
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	must(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		if !h.ModTime.Equal(made) {
			t.Errorf("%s: %s has the time %s", name, h.Name, h.ModTime)
		}
		files[h.Name] = string(content)
	}
}

// checkPlugin expects krew's manifest to name the archives by their checksums, and each archive to hold the program and
// the licenses.
func checkPlugin(t *testing.T, r Release) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.Dir, "plugin", "pnap.yaml"))
	must(t, err)
	var manifest krewPlugin
	must(t, yaml.UnmarshalStrict(raw, &manifest))
	if manifest.Spec.Version != "v1.2.3" || manifest.Metadata["name"] != "pnap" || len(manifest.Spec.Platforms) != 2 {
		t.Errorf("manifest of krew:\n%s", raw)
	}
	for _, platform := range manifest.Spec.Platforms {
		labels := platform.Selector.MatchLabels
		name := "kubectl-pnap-" + labels["os"] + "-" + labels["arch"] + ".tar.gz"
		if platform.URI != site+"/releases/download/v1.2.3/"+name {
			t.Errorf("%v comes from %s", labels, platform.URI)
		}
		archive := filepath.Join(r.Dir, "plugin", name)
		content, err := os.ReadFile(archive)
		must(t, err)
		if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != platform.SHA256 {
			t.Errorf("the checksum of %s is %s, the manifest says %s", name, sum, platform.SHA256)
		}
		files := unpack(t, r, archive)
		if (path.Ext(platform.Bin) == ".exe") != (labels["os"] == "windows") || files[platform.Bin] == "" ||
			!strings.Contains(files["LICENSE"], "Apache License") ||
			!strings.Contains(files["third-party-licenses.txt"], "Mozilla Public License") || len(files) != 3 {
			t.Errorf("%s does not hold %s and its licenses", name, platform.Bin)
		}
	}
}

// checkChart has helm read the chart: it has the version of the release and the digests of its images, and renders what
// the chart of the source tree does besides. A registry gets the same bytes.
func checkChart(t *testing.T, r Release, p Published) {
	t.Helper()
	packed := filepath.Join(r.Dir, "chart", "phoenixnap-cloud-provider-1.2.3.tgz")
	files := unpack(t, r, packed)
	if text := files["phoenixnap-cloud-provider/Chart.yaml"]; !strings.Contains(text, "\nversion: 1.2.3\n") ||
		!strings.Contains(text, "\nappVersion: v1.2.3\n") {
		t.Errorf("Chart.yaml:\n%s", text)
	}
	helm, err := tools.Binary(t.Context(), "helm")
	must(t, err)
	render := func(chart string) []string {
		cmd := exec.CommandContext(t.Context(), helm, "template", "x", chart, "--kube-version", "1.36.0",
			"--namespace", "kube-system")
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm: %v\n%s", err, out)
		}
		return strings.Split(string(out), "\n")
	}
	before := render(filepath.Join(r.Root, "deploy/helm", Chart))
	var want, got []string
	for _, line := range render(packed) {
		if !slices.Contains(before, line) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, i := range published() {
		name, _, _ := strings.Cut(i.Reference, ":")
		want = append(want, `image: "`+name+"@"+i.Digest+`"`)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.DeleteFunc(slices.Compact(got), labelled)); diff != "" {
		t.Errorf("what the chart of the release renders otherwise (-want +got):\n%s", diff)
	}
	reference, digest, err := image.Describe(filepath.Join(r.Dir, p.Archive))
	if err != nil || reference != "registry.example.com/team/phoenixnap-cloud-provider:1.2.3" || digest != p.Digest {
		t.Errorf("the chart for a registry is %s@%s, %v; want %s", reference, digest, err, p.Digest)
	}
	again := r
	again.Dir = t.TempDir()
	if other, err := again.addChart(t.Context(), published()); err != nil || other.Digest != p.Digest {
		t.Errorf("a second chart is %s, %v; want %s", other.Digest, err, p.Digest)
	}
}

// labelled reports whether a line is a label with the version.
func labelled(line string) bool {
	return strings.HasPrefix(line, "app.kubernetes.io/version:") || strings.HasPrefix(line, "helm.sh/chart:")
}

func TestChartNamesItsImagesOnce(t *testing.T) {
	values := []byte("agent:\n  image:\n    repository: phoenixnap/phoenixnap-agent\n    tag: \"\"\n    digest: \"\"\n")
	if got, err := withImages(values, published()); err == nil {
		t.Errorf("a chart without an image of the controller is published:\n%s", got)
	}
	if _, err := versioned([]byte("version: 1\n"), "1.2.3"); err == nil {
		t.Error("a chart without an appVersion is published")
	}
}
