package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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
	kubeletClientFile  = "apiserver-kubelet-client"
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
	// A client reaches the API server from this machine, or from within a cluster by the Service "kubernetes", whose
	// address is the first of ServiceCIDR.
	apiServerNames := append([]string{"127.0.0.1", "localhost", "10.96.0.1", "kubernetes", "kubernetes.default",
		ServerName, ServerName + ".cluster.local"}, names...)
	if err := errors.Join(
		cluster.write(filepath.Join(dir, apiServerFile), serverTemplate("kube-apiserver", apiServerNames)),
		cluster.write(filepath.Join(dir, kubeletClientFile),
			clientTemplate("kube-apiserver-kubelet-client", []string{"system:masters"})),
		etcd.write(filepath.Join(dir, etcdServerFile), serverTemplate("etcd", []string{"127.0.0.1", "localhost"})),
		etcd.write(filepath.Join(dir, etcdClientFile), clientTemplate("kube-apiserver", nil)),
	); err != nil {
		return nil, err
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

// write makes a certificate and writes it to path.crt and path.key.
func (a *authority) write(path string, template x509.Certificate) error {
	certificate, key, err := a.issue(template)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".crt", certificate, 0o600), os.WriteFile(path+".key", key, 0o600))
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

// issue signs a certificate with a new key; both are PEM.
func (a *authority) issue(template x509.Certificate) (certificate, encodedKey []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	template.SerialNumber.Add(template.SerialNumber, big.NewInt(1))
	now := time.Now()
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, &template, a.parsed, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate for %s: %w", template.Subject.CommonName, err)
	}
	encodedKey, err = keyutil.MarshalPrivateKeyToPEM(key)
	return encode(der), encodedKey, err
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
