package release

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/licenses"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFiles assembles everything but the images, which package image tests, from one real program.
func TestFiles(t *testing.T) {
	root, err := tools.ModuleRoot()
	must(t, err)
	built, err := tools.Product(t.Context(), "./test/env/cluster/cmd/backend")
	must(t, err)
	dir := t.TempDir()
	for _, name := range []string{"phoenixnap-agent-linux-amd64", "pnapsim-linux-amd64", "ca-certificates.crt",
		"kubectl-pnap-darwin-arm64", "kubectl-pnap-windows-amd64"} {
		must(t, copyFile(built, filepath.Join(dir, "bin", name), 0o755))
	}
	r := Release{Root: root, Dir: filepath.Join(dir, "release"), Programs: filepath.Join(dir, "bin"),
		Registry: "registry.example.com/team",
		Stamp:    image.Stamp{Version: "v1.2.3", Commit: "abc", Epoch: "1700000000"}}
	must(t, r.addPrograms(t.Context()))
	must(t, r.addManifests(published()))
	chart, err := r.addChart(t.Context(), published())
	must(t, err)
	must(t, r.sum())
	checkPlugin(t, r)
	checkChart(t, r, chart)
	for _, want := range []string{"bin/phoenixnap-agent-linux-amd64", "sbom/phoenixnap-agent-linux-amd64.cdx.json",
		"manifests/kubeadm/deployment.yaml", "manifests/crds.yaml", "manifests/secret.yaml", "manifests/kube-vip.yaml",
		"third-party-licenses.txt"} {
		if _, err := os.Stat(filepath.Join(r.Dir, want)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "bin/pnapsim-linux-amd64")); err == nil {
		t.Error("the simulator is published")
	}
	checkSums(t, r.Dir)
	checkManifests(t, r)
	_, err = r.flatten()
	must(t, err)
	checkSums(t, r.page())
	checkNames(t, r)
	r.Programs = t.TempDir()
	if err := r.addPrograms(t.Context()); err == nil || !strings.Contains(err.Error(), "run make build") {
		t.Errorf("without programs: %v", err)
	}
}

// published are the images of a release, without their archives.
func published() []Published {
	var all []Published
	for n, i := range image.Images() {
		all = append(all, Published{Image: i, Reference: "registry.example.com/team/" + i.Name + ":v1.2.3",
			Digest: "sha256:" + strings.Repeat(strconv.Itoa(n), 64)})
	}
	return all
}

// checkManifests expects every overlay to name the images that are published, and to differ by nothing else.
func checkManifests(t *testing.T, r Release) {
	t.Helper()
	overlays, err := deploy.Overlays(r.Root)
	must(t, err)
	if len(overlays) == 0 {
		t.Error("no overlay is published")
	}
	for _, overlay := range overlays {
		before, err := os.ReadFile(deploy.Rendered(r.Root, overlay))
		must(t, err)
		after, err := os.ReadFile(filepath.Join(r.Dir, "manifests", overlay, deploy.File))
		must(t, err)
		was := strings.Split(string(before), "\n")
		is := strings.Split(string(after), "\n")
		if len(was) != len(is) {
			t.Fatalf("%s: %d lines became %d", overlay, len(was), len(is))
		}
		var got, want []string
		for i := range is {
			if is[i] != was[i] {
				got = append(got, strings.TrimSpace(is[i]))
			}
		}
		for _, p := range published() {
			if p.Image.Name == image.Agent && strings.HasSuffix(overlay, "-nodes") {
				continue // it has no agents
			}
			want = append(want, "image: "+p.Reference+"@"+p.Digest)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: other lines than those of the images (-want +got):\n%s", overlay, diff)
		}
	}
	if _, err := pin([]byte("image: phoenixnap/phoenixnap-agent:v1\n"), published()); err == nil {
		t.Error("a manifest without an image of the controller is published")
	}
	controllerOnly := "image: phoenixnap/" + image.Controller + ":v1\nkind: DaemonSet\n"
	if _, err := pin([]byte(controllerOnly), published()); err == nil {
		t.Error("a DaemonSet without an image of the agent is published")
	}
}

// checkNames expects the GitHub release to have the manifests by the names that pages give to them, and no others.
func checkNames(t *testing.T, r Release) {
	t.Helper()
	files, err := Manifests(r.Root)
	must(t, err)
	shown, err := filepath.Glob(filepath.Join(r.page(), "*.yaml"))
	must(t, err)
	want := append(slices.Collect(maps.Keys(files)), PluginManifest)
	slices.Sort(want)
	for i := range shown {
		shown[i] = filepath.Base(shown[i])
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("YAML files of the GitHub release (-want +got):\n%s", diff)
	}
	for _, source := range files {
		if _, err := os.Stat(source); err != nil {
			t.Error(err)
		}
	}
}

// checkSums reads SHA256SUMS as sha256sum --check does, and expects every file in it.
func checkSums(t *testing.T, dir string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	must(t, err)
	listed := 1 // the list itself
	for line := range strings.Lines(string(raw)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if hash := sha256.Sum256(content); !ok || sum != hex.EncodeToString(hash[:]) {
			t.Errorf("checksum of %q is wrong", name)
		}
		listed++
	}
	files := 0
	must(t, filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
		}
		return err
	}))
	if files != listed {
		t.Errorf("%d checksums for %d files", listed-1, files-1)
	}
}

func TestBill(t *testing.T) {
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Path: "example.com/m/cmd",
		Main: debug.Module{Path: "example.com/m"}, Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.0.0"},
			{Path: "example.com/b", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.0"}},
		}}
	known := []licenses.Part{{Path: "stdlib", Version: "go1.26.8", License: "BSD-3-Clause"},
		{Path: "example.com/a", Version: "v1.0.0", License: "MPL-2.0", Source: "https://example.com/a.zip"}}
	if _, err := bill(info, "v1.2.3", time.Unix(0, 0), known); err == nil ||
		!strings.Contains(err.Error(), "example.com/fork@v2.0.0 has no known license") {
		t.Errorf("a part without a license: %v", err)
	}
	list, err := bill(info, "v1.2.3", time.Unix(0, 0), append(known, licenses.Part{Path: "example.com/fork",
		Version: "v2.0.0", License: "MIT AND BSD-3-Clause"}))
	must(t, err)
	raw, err := json.Marshal(list)
	must(t, err)
	var got struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Timestamp string
			Component struct{ Name, Version, PURL string }
		}
		Components []struct {
			PURL               string
			Licenses           []struct{ Expression string }
			ExternalReferences []struct{ URL string }
		}
		Dependencies []struct{ DependsOn []string }
	}
	must(t, json.Unmarshal(raw, &got))
	if got.BOMFormat != "CycloneDX" || got.Metadata.Timestamp != "1970-01-01T00:00:00Z" ||
		got.Metadata.Component.Name != "example.com/m/cmd" ||
		got.Metadata.Component.PURL != "pkg:golang/example.com/m@v1.2.3" {
		t.Errorf("bill: %s", raw)
	}
	want := []string{"pkg:golang/stdlib@go1.26.8", "pkg:golang/example.com/a@v1.0.0",
		"pkg:golang/example.com/fork@v2.0.0"}
	var parts []string
	for _, c := range got.Components {
		parts = append(parts, c.PURL)
	}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if part := got.Components[1]; part.Licenses[0].Expression != "MPL-2.0" ||
		part.ExternalReferences[0].URL != "https://example.com/a.zip" {
		t.Errorf("license and source: %+v", part)
	}
	if diff := cmp.Diff(want, got.Dependencies[0].DependsOn); diff != "" {
		t.Errorf("dependencies (-want +got):\n%s", diff)
	}
}
