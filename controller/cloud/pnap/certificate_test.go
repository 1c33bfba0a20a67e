package pnap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// authority signs the certificates of one company.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a company"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign makes a certificate for an address, valid until then.
func (a *authority) sign(t *testing.T, address string, until time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: until,
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// mount writes the certificate of the authority as the kubelet mounts a ConfigMap: as a link to a link.
func (a *authority) mount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "..2026"), 0o700),
		os.WriteFile(filepath.Join(dir, "..2026", "ca.crt"), text, 0o600),
		os.Symlink("..2026", filepath.Join(dir, "..data")),
		os.Symlink(filepath.Join("..data", "ca.crt"), filepath.Join(dir, "ca.crt"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// over serves the service over TLS.
func over(t *testing.T, s *service, certificate tls.Certificate) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(s.Config.Handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func locations(t *testing.T) *service {
	t.Helper()
	return newService(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, []map[string]any{{"location": "ASH"}})
	})
}

// TestCertificatesThatAreNotAccepted: the error of the token endpoint, of the API and of a proxy before them says what
// to do, in events, in the report of the account and in health.
func TestCertificatesThatAreNotAccepted(t *testing.T) {
	private := newAuthority(t)
	plain := locations(t)
	unknown := over(t, plain, private.sign(t, "127.0.0.1", time.Now().Add(time.Hour)))
	for name, change := range map[string]func(*Config){
		"token endpoint": func(c *Config) { c.TokenURL = unknown.URL + TokenPath },
		"API":            func(c *Config) { c.BaseURL = unknown.URL },
	} {
		client := clientOf(t, plain, change)
		_, err := client.Locations(t.Context())
		if err == nil || !strings.Contains(Explain(err), "x509: certificate signed by unknown authority") ||
			!strings.HasSuffix(Explain(err), "; "+trustAuthority) {
			t.Errorf("%s: %s", name, Explain(err))
		}
		if got := client.Health().Failure; !strings.HasSuffix(got, "; "+trustAuthority) {
			t.Errorf("%s: health says %s", name, got)
		}
	}
}

// TestPrivateAuthority: the environment names authorities beside those of the image, or in their place. The process is
// another one, because crypto/x509 reads them once.
func TestPrivateAuthority(t *testing.T) {
	const child = "CERTIFICATE_TEST_URL"
	if url := os.Getenv(child); url != "" {
		client := clientOf(t, &service{Server: &httptest.Server{URL: url}})
		got, err := client.Locations(t.Context())
		if err != nil {
			t.Fatal(Explain(err))
		}
		if !slices.Equal(got, []string{"ASH"}) {
			t.Fatalf("locations %v", got)
		}
		return
	}
	private := newAuthority(t)
	mounted := private.mount(t)
	good := private.sign(t, "127.0.0.1", time.Now().Add(time.Hour))
	for name, tc := range map[string]struct {
		certificate tls.Certificate
		env         []string
		want        string
	}{
		"without":         {certificate: good, want: trustAuthority},
		"SSL_CERT_DIR":    {certificate: good, env: []string{"SSL_CERT_DIR=" + mounted}},
		"SSL_CERT_FILE":   {certificate: good, env: []string{"SSL_CERT_FILE=" + filepath.Join(mounted, "ca.crt")}},
		"another company": {certificate: good, env: []string{"SSL_CERT_DIR=" + newAuthority(t).mount(t)}, want: trustAuthority},
		"another address": {certificate: private.sign(t, "127.0.0.9", time.Now().Add(time.Hour)),
			env: []string{"SSL_CERT_DIR=" + mounted}, want: correctHost},
		"expired": {certificate: private.sign(t, "127.0.0.1", time.Now().Add(-time.Hour)),
			env: []string{"SSL_CERT_DIR=" + mounted}, want: correctClock},
	} {
		server := over(t, locations(t), tc.certificate)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(append(os.Environ(), child+"="+server.URL), tc.env...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (tc.want == "") || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, tc.want, out)
		}
	}
}
