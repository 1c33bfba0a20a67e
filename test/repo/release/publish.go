package release

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/repo/image"
)

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
