package release

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

## [2.1.0] - 2027-03-01

### Fixed

- One of [two](docs/two.md#one) [things](https://example.com/x).

## [2.1.0-rc.1] - 2027-02-01

- A candidate.

## [2.0.0] - 2027-01-31
`

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	const base = "https://github.com/phoenixnap/k8s-cloud-provider-bmc/blob/v2.1.0/"
	for version, want := range map[string]string{
		"v2.1.0":      "### Fixed\n\n- One of [two](" + base + "docs/two.md#one) [things](https://example.com/x).\n",
		"v2.1.0-rc.1": "- A candidate.\n",
	} {
		if got, err := Notes(changelog, version); err != nil || got != want {
			t.Errorf("Notes(%s) = %q, %v, want %q", version, got, err, want)
		}
	}
	for _, version := range []string{"v2.0.0", "v2.1", "v0.0.0-g123", ""} {
		if got, err := Notes(changelog, version); err == nil || !strings.Contains(err.Error(), "under Unreleased") {
			t.Errorf("Notes(%s) = %q, %v, want an error with the remedy", version, got, err)
		}
	}
}

// TestGitHubRelease lays out the files of a release, and of one with two files of a name.
func TestGitHubRelease(t *testing.T) {
	dir := t.TempDir()
	r := Release{Root: dir, Dir: filepath.Join(dir, "release")}
	write := func(name string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	for _, name := range []string{"bin/kubectl-pnap-linux-amd64", "images/phoenixnap-agent.tar",
		"manifests/kubeadm/deployment.yaml", "manifests/k3s/deployment.yaml", "manifests/secret.yaml"} {
		write("release/" + name)
	}
	must(t, r.sum())
	must(t, os.WriteFile(filepath.Join(dir, Changelog), []byte(changelog), 0o644))
	steps, err := r.Announce("v2.1.0-rc.1")
	must(t, err)
	sums := filepath.Join(r.page(), "SHA256SUMS")
	if got := strings.Join(steps[0].Args, " "); got != "cosign sign-blob --yes --new-bundle-format --bundle "+sums+
		".sigstore.json "+sums {
		t.Errorf("what is signed: %s", got)
	}
	step := steps[1]
	var files []string
	for _, arg := range step.Args[slices.Index(step.Args, "--prerelease")+1:] {
		files = append(files, filepath.Base(arg))
	}
	want := []string{"kubectl-pnap-linux-amd64", "phoenixnap-agent.tar", "k3s.yaml", "kubeadm.yaml", "secret.yaml",
		"SHA256SUMS", "SHA256SUMS.sigstore.json"}
	if line := strings.Join(step.Args[:8], " "); !slices.Equal(files, want) || line !=
		"gh release create v2.1.0-rc.1 --verify-tag --title v2.1.0-rc.1 --notes-file" {
		t.Errorf("the command is %s with files %q, want %q", line, files, want)
	}
	checkSums(t, r.page())
	write("release/sbom/secret.yaml")
	if _, err := r.Announce("v2.1.0-rc.1"); err == nil {
		t.Error("two files of one name are published")
	}
	must(t, os.Remove(filepath.Join(r.Dir, "sbom", "secret.yaml")))
	if _, err := r.Announce("v2.0.0"); err == nil {
		t.Error("a release without notes is published")
	}
}
