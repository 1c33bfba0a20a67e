package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// RecordTested notes that the image of a digest has passed the end-to-end test on this machine.
func RecordTested(digest string) error {
	path, err := testedPath(digest)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
		return fmt.Errorf("note that %s was tested: %w", digest, err)
	}
	return nil
}

// Tested reports whether the image of a digest has passed the end-to-end test on this machine.
func Tested(digest string) (bool, error) {
	path, err := testedPath(digest)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func testedPath(digest string) (string, error) {
	hash, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", fmt.Errorf("digest %q: want sha256 and 64 hexadecimal digits", digest)
	}
	cache, err := tools.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "tested-images", hash), nil
}
