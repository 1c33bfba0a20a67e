package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// handshakeLimit bounds one look at a certificate.
const handshakeLimit = 5 * time.Second

// Probe reads the certificates of API servers by a TLS handshake.
type Probe struct {
	roots *x509.CertPool
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewProbe returns a probe that trusts the authority that config trusts.
func NewProbe(config *rest.Config) (*Probe, error) {
	trusted, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of the API server: %w", err)
	}
	probe := &Probe{dial: config.Dial}
	if trusted != nil {
		probe.roots = trusted.RootCAs
	}
	if probe.dial == nil {
		probe.dial = new(net.Dialer).DialContext
	}
	return probe, nil
}

// Names implements Certificates. It connects to endpoint and does what a client does who reached it under address: a
// client names no server by an IP address (RFC 6066, section 3), and looks for it among the certificate's addresses.
func (p *Probe) Names(ctx context.Context, endpoint netip.AddrPort, address netip.Addr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	connection, err := p.dial(ctx, "tcp", endpoint.String())
	if err != nil {
		return false, fmt.Errorf("connect to the API server at %s: %w", endpoint, err)
	}
	defer func() { _ = connection.Close() }()
	err = tls.Client(connection, &tls.Config{RootCAs: p.roots, ServerName: address.String(),
		MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
	var otherName x509.HostnameError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &otherName):
		return false, nil
	default:
		return false, fmt.Errorf("read the certificate of the API server at %s: %w", endpoint, err)
	}
}

// sight is what one API server's certificate says of the published address.
type sight struct {
	server netip.AddrPort
	names  bool
	err    error // why it is not known
}

// look asks all API servers.
func (k *Reconciler) look(ctx context.Context, servers []netip.AddrPort, address netip.Addr) []sight {
	sights := make([]sight, 0, len(servers))
	for _, server := range servers {
		names, err := k.config.Certificates.Names(ctx, server, address)
		klog.FromContext(ctx).V(2).Info("Looked at the certificate of an API server", "server", server, "address",
			address, "named", names, "err", err)
		sights = append(sights, sight{server: server, names: names, err: err})
	}
	return sights
}

// verdict is an event to record.
type verdict struct{ eventType, reason, text string }

// judge says what the certificates mean for clients: one that lacks the address is an error that some of them will
// see; one that could not be read counts only when none was read.
func judge(sights []sight, address netip.Addr, port int32) verdict {
	read := 0
	for _, s := range sights {
		if s.err != nil {
			continue
		}
		if !s.names {
			return verdict{corev1.EventTypeWarning, eventCertificateLacksAddress, fmt.Sprintf(
				"The certificate of the API server at %s is not valid for %s, so clients will refuse it. %s", s.server,
				address, remedy(address))}
		}
		read++
	}
	if read == 0 {
		return verdict{corev1.EventTypeNormal, eventCertificateUnread, fmt.Sprintf(
			"No certificate of an API server could be held against %s. It must be valid for that address. %s", address,
			remedy(address))}
	}
	return verdict{corev1.EventTypeNormal, eventPublished, fmt.Sprintf(
		"The API server is published at https://%s, and its certificate is valid for that address",
		netip.AddrPortFrom(address, uint16(port)))} //nolint:gosec // the API validates ports
}

// remedy says how the address gets into the certificate.
func remedy(address netip.Addr) string {
	return fmt.Sprintf("Add it to the certificate on every control-plane node: with kubeadm under "+
		"apiServer.certSANs, with k3s and RKE2 by --tls-san=%s", address)
}
