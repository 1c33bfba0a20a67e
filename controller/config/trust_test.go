package config

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// certificate is one in PEM form.
func certificate(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// TestAuthoritiesOfTheEnvironment: what names certificate authorities and has none is an error with its remedy.
func TestAuthoritiesOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	good := certificate(t)
	for name, text := range map[string]string{
		"good/ca.crt": "a comment\n" + good, "good/README": "certificates", "second/a.pem": "-----BEGIN PRIVATE KEY-----\nAAAA\n" +
			"-----END PRIVATE KEY-----\n" + good, "empty/README": "none", "der/ca.crt": "\x30\x82\x01", "cut/ca.crt": good[:len(good)/2],
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	if err := os.Symlink(filepath.Join("good", "ca.crt"), filepath.Join(dir, "link.crt")); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, tc := range []struct{ file, directories, want string }{
		{file: at("good/ca.crt"), directories: at("good") + ":" + at("second")},
		{file: at("link.crt"), directories: dir + ":"},
		{file: at("nothing"), want: "SSL_CERT_FILE: open " + at("nothing") + ": no such file or directory: set it to a file"},
		{file: at("cut/ca.crt"), want: "SSL_CERT_FILE: " + at("cut/ca.crt") + " has no certificate: set it to a file"},
		{directories: at("good") + ":" + at("empty"), want: "SSL_CERT_DIR: no file in " + at("empty") + " has a certificate"},
		{directories: at("der"), want: "create ConfigMap or Secret kube-system/phoenixnap-trusted-ca"},
		{directories: at("nothing"), want: "SSL_CERT_DIR: no file in " + at("nothing")},
	} {
		_, err := load(t, `{`+credentials1+`}`, map[string]string{"SSL_CERT_FILE": tc.file, "SSL_CERT_DIR": tc.directories})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
