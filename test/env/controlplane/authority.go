package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Names of the files, without .crt and .key, that the servers read from their directory.
const (
	authorityFile      = "ca"
	apiServerFile      = "kube-apiserver"
	etcdAuthorityFile  = "etcd-ca"
	etcdServerFile     = "etcd"
	etcdClientFile     = "etcd-client"
	serviceAccountFile = "service-account"
)

const (
	// validity is how long certificates live: as long as one may keep a demo running.
	validity = 365 * 24 * time.Hour
	// backdate allows for a client whose clock is behind, such as that of an emulated machine.
	backdate = 24 * time.Hour
)

// authority is a certificate authority (RFC 5280).
type authority struct {
	certificate []byte // PEM
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

// pair is a certificate with its private key, both PEM.
type pair struct{ certificate, key []byte }

// issueAll makes both authorities and writes all files of the two servers. etcd has an authority of its own, so
// that a client of the API server is no client of etcd. It returns the API server's.
func issueAll(dir string, names []string) (*authority, error) {
	cluster, err := newAuthority("kubernetes")
	if err != nil {
		return nil, err
	}
	etcd, err := newAuthority("etcd")
	if err != nil {
		return nil, err
	}
	serviceAccountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	loopback := []string{"127.0.0.1", "localhost"}
	for name, template := range map[string]issue{
		apiServerFile:  {by: cluster, template: serverTemplate("kube-apiserver", append(apiServerNames(), names...))},
		etcdServerFile: {by: etcd, template: serverTemplate("etcd", loopback)},
		etcdClientFile: {by: etcd, template: clientTemplate("kube-apiserver", nil)},
	} {
		if err := template.write(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for name, content := range map[string][]byte{
		authorityFile + ".crt":      cluster.certificate,
		etcdAuthorityFile + ".crt":  etcd.certificate,
		serviceAccountFile + ".key": serviceAccountKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return cluster, nil
}

// apiServerNames are the names under which clients reach an API server: from this machine, and from within a
// cluster by the Service "kubernetes", whose address is the first of ServiceCIDR.
func apiServerNames() []string {
	return []string{
		"127.0.0.1", "localhost", "10.96.0.1",
		"kubernetes", "kubernetes.default", ServerName, ServerName + ".cluster.local",
	}
}

// issue is a certificate to be made.
type issue struct {
	by       *authority
	template x509.Certificate
}

// write makes the certificate and writes it to path.crt and path.key.
func (i issue) write(path string) error {
	p, err := i.by.issue(i.template)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".crt", p.certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".key", p.key, 0o600)
}

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	config := cert.Config{CommonName: name, NotBefore: time.Now().Add(-backdate)}
	parsed, err := cert.NewSelfSignedCACert(config, key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority %s: %w", name, err)
	}
	return &authority{certificate: encode(parsed.Raw), parsed: parsed, key: key}, nil
}

// issue signs a certificate with a new key.
func (a *authority) issue(template x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return pair{}, err
	}
	template.SerialNumber.Add(template.SerialNumber, big.NewInt(1))
	now := time.Now()
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, &template, a.parsed, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("issue a certificate for %s: %w", template.Subject.CommonName, err)
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	return pair{certificate: encode(der), key: encodedKey}, err
}

// serverTemplate is for a server that also calls itself, as etcd does.
func serverTemplate(name string, names []string) x509.Certificate {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	return template
}

// clientTemplate is for a user: the common name is the user's name, the organizations are the groups
// (Kubernetes documentation, Authenticating, X.509 client certificates).
func clientTemplate(name string, groups []string) x509.Certificate {
	return x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: slices.Clone(groups)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
