package release

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// archives are the images and the chart of a release, below its directory.
func archives() []Published {
	var all []Published
	for _, i := range image.Images() {
		all = append(all, Published{Image: i, Archive: filepath.Join(images, i.Name+".tar")})
	}
	return append(all, Published{Image: image.Image{Name: Chart}, Archive: filepath.Join(chart, Chart+".tar")})
}

// Contents are the images and the chart that are in the directory.
func (r Release) Contents() ([]Published, error) {
	all := archives()
	for i := range all {
		var err error
		all[i].Reference, all[i].Digest, err = image.Describe(filepath.Join(r.Dir, all[i].Archive))
		if err != nil {
			return nil, fmt.Errorf("release in %s: %w", r.Dir, err)
		}
	}
	return all, nil
}

// Tested is the file that says which release has passed the end-to-end test: the checksums of its files, and the
// digests of its images and chart. It is beside the directory, and goes with it from one machine to another.
func (r Release) Tested() string { return r.Dir + "-tested" }

// RecordTested notes that the release has passed the end-to-end test.
func (r Release) RecordTested() error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	return os.WriteFile(r.Tested(), []byte(subjects), 0o644)
}

// subjects are the checksums of all files, which have to be those of SHA256SUMS, and the digests of images and chart.
// The form is that of sha256sum, which the signers of provenance read.
func (r Release) subjects() (string, error) {
	listed, err := os.ReadFile(filepath.Join(r.Dir, checksums))
	if err != nil {
		return "", fmt.Errorf("run make release: %w", err)
	}
	sums, err := r.sums()
	if err != nil {
		return "", err
	}
	if sums != string(listed) {
		return "", fmt.Errorf("the files in %s are not those of its %s: run make release E2E=1 again", r.Dir, checksums)
	}
	contents, err := r.Contents()
	if err != nil {
		return "", err
	}
	for _, p := range contents {
		sums += strings.TrimPrefix(p.Digest, "sha256:") + "  " + p.Reference + "\n"
	}
	return sums, nil
}

// CheckTested is an error unless exactly this release has passed the end-to-end test.
func (r Release) CheckTested() error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	tested, err := os.ReadFile(r.Tested())
	if err == nil && string(tested) != subjects {
		err = errors.New("another one has")
	}
	if err != nil {
		return fmt.Errorf("the release in %s has not passed the end-to-end test, run make release E2E=1: %w", r.Dir,
			err)
	}
	return nil
}

// Report prints each image, and the chart, with its digest.
func Report(published []Published, out io.Writer) {
	for _, p := range published {
		fmt.Fprintf(out, "%s@%s\n", p.Reference, p.Digest)
	}
}

// Publish are the command lines that bring images and chart to their registry and sign them there. The digests are
// kept: what is pulled is, byte by byte, what was tested. cosign signs without a key, with the identity of who runs it.
func (r Release) Publish(published []Published) []image.Step {
	var steps []image.Step
	for _, p := range published {
		repository := strings.TrimSuffix(p.Reference, ":"+p.Version())
		steps = append(steps, image.Step{Args: []string{
			"skopeo", "copy", "--all", "--preserve-digests", "oci-archive:" + filepath.Join(r.Dir, p.Archive),
			"docker://" + p.Reference,
		}}, image.Step{Args: []string{"cosign", "sign", "--yes", repository + "@" + p.Digest}})
	}
	return steps
}
