package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// archived makes a directory look like a release: a chart in the place of each image.
func archived(t *testing.T) Release {
	t.Helper()
	r := Release{Dir: filepath.Join(t.TempDir(), "release"), Stamp: image.Stamp{Epoch: "1700000000"}}
	for _, p := range archives() {
		must(t, r.packArtifact(t.Context(), "r/"+p.Image.Name+":v1", []byte("{}"), []byte(p.Image.Name),
			filepath.Join(r.Dir, p.Archive)))
	}
	must(t, r.sum())
	return r
}

// TestNothingUntestedIsPublished: what is published has passed the end-to-end test, byte by byte.
func TestNothingUntestedIsPublished(t *testing.T) {
	r := archived(t)
	refused := func(why string) {
		t.Helper()
		if err := r.CheckTested(); err == nil || !strings.Contains(err.Error(), "make release E2E=1") {
			t.Errorf("%s is published: %v", why, err)
		}
	}
	refused("what was never tested")
	must(t, r.RecordTested())
	must(t, r.CheckTested())
	contents, err := r.Contents()
	must(t, err)
	raw, err := os.ReadFile(r.Tested())
	must(t, err)
	for _, p := range contents {
		if !strings.Contains(string(raw), strings.TrimPrefix(p.Digest, "sha256:")+"  "+p.Reference+"\n") {
			t.Errorf("%s does not name %s", r.Tested(), p.Reference)
		}
	}
	must(t, os.WriteFile(filepath.Join(r.Dir, "added"), nil, 0o644))
	refused("a file that came later")
	must(t, r.sum())
	refused("another release than the one that was tested")
	must(t, os.Remove(filepath.Join(r.Dir, "added")))
	must(t, r.sum())
	must(t, r.CheckTested())
	must(t, os.Remove(filepath.Join(r.Dir, contents[0].Archive)))
	refused("a release without an image")
}

func TestPublish(t *testing.T) {
	steps := Release{Dir: "d"}.Publish([]Published{{Reference: "r:5000/b:v1", Digest: "sha256:1",
		Archive: "images/b.tar"}})
	want := []string{"skopeo copy --all --preserve-digests oci-archive:d/images/b.tar docker://r:5000/b:v1",
		"cosign sign --yes r:5000/b@sha256:1"}
	for i, s := range steps {
		if got := strings.Join(s.Args, " "); got != want[i] {
			t.Errorf("step %d is %s, want %s", i, got, want[i])
		}
	}
}
