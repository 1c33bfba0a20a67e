package config

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkTrust returns a problem for each file and directory that the environment names for certificate authorities
// (crypto/x509) and in which there is no certificate. Without a check it would have no effect, and requests would fail.
func checkTrust(getenv func(string) string) []error {
	var problems []error
	if path := getenv("SSL_CERT_FILE"); path != "" {
		found, err := hasCertificate(path)
		if err == nil && !found {
			err = fmt.Errorf("%s has no certificate", path)
		}
		if err != nil {
			problems = append(problems,
				fmt.Errorf("SSL_CERT_FILE: %w: set it to a file with certificates in PEM form", err))
		}
	}
	for dir := range strings.SplitSeq(getenv("SSL_CERT_DIR"), ":") {
		if dir != "" && !anyCertificate(dir) {
			problems = append(problems, fmt.Errorf("SSL_CERT_DIR: no file in %s has a certificate in PEM form: create "+
				"ConfigMap or Secret kube-system/phoenixnap-trusted-ca with one (docs/guides/install.md), or correct it", dir))
		}
	}
	return problems
}

// anyCertificate reports whether a file of a directory has a certificate. Files that cannot be read have none.
func anyCertificate(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		found, err := hasCertificate(filepath.Join(dir, entry.Name()))
		return err == nil && found
	})
}

// hasCertificate reports whether a file has a certificate.
func hasCertificate(path string) (bool, error) {
	text, err := os.ReadFile(path)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			return true, nil
		}
	}
	return false, err
}
