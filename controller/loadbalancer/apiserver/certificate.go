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

// Reasons of the events on the Service kube-system/phoenixnap-control-plane.
const (
	// eventPublished (Normal): the API server is reachable under the published address, which its certificate names.
	eventPublished = "ControlPlaneEndpointPublished"
	// eventCertificateLacksAddress (Warning): the certificate of an API server does not name the published address, so
	// that clients refuse it.
	eventCertificateLacksAddress = "CertificateNameMissing"
	// eventCertificateUnread (Normal): no API server showed a certificate that could be held against the address.
	eventCertificateUnread = "CertificateNotChecked"
	// eventNotRoutable (Warning): no API server advertises an address that an EndpointSlice may hold.
	eventNotRoutable = "EndpointNotRoutable"
	// eventForeign (Warning): a Service of that name is there and is not ours.
	eventForeign = "ControlPlaneServiceForeign"
)

// handshakeLimit bounds one read of a certificate.
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

// Names implements Certificates. It connects to endpoint and does what a client of address does: it sends no server
// name for an IP address (RFC 6066, section 3), and searches the certificate's addresses for it.
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

// check reports whether one API server's certificate names the published address.
type check struct {
	server netip.AddrPort
	names  bool
	err    error // why that is not known
}

// checkAll reads the certificates of all API servers.
func (r *Reconciler) checkAll(ctx context.Context, servers []netip.AddrPort, address netip.Addr) []check {
	checks := make([]check, 0, len(servers))
	for _, server := range servers {
		names, err := r.config.Certificates.Names(ctx, server, address)
		klog.FromContext(ctx).V(2).Info("Looked at the certificate of an API server", "server", server, "address",
			address, "named", names, "err", err)
		checks = append(checks, check{server: server, names: names, err: err})
	}
	return checks
}

// event is an event to record.
type event struct{ eventType, reason, text string }

// result returns what the certificates mean for clients: one that lacks the address is an error that some of them will
// get; one that could not be read counts only when none was read.
func result(checks []check, address netip.Addr, port int32) event {
	read := 0
	for _, c := range checks {
		if c.err != nil {
			continue
		}
		if !c.names {
			return event{corev1.EventTypeWarning, eventCertificateLacksAddress, fmt.Sprintf(
				"The certificate of the API server at %s is not valid for %s, so clients will refuse it. %s", c.server,
				address, remedy(address))}
		}
		read++
	}
	if read == 0 {
		return event{corev1.EventTypeNormal, eventCertificateUnread, fmt.Sprintf(
			"No certificate of an API server could be held against %s. It must be valid for that address. %s", address,
			remedy(address))}
	}
	return event{corev1.EventTypeNormal, eventPublished, fmt.Sprintf(
		"The API server is published at https://%s, and its certificate is valid for that address",
		netip.AddrPortFrom(address, uint16(port)))} //nolint:gosec // the API validates ports
}

// remedy returns how to add the address to the certificate.
func remedy(address netip.Addr) string {
	return fmt.Sprintf("Add it to the certificate on every control-plane node: with kubeadm under "+
		"apiServer.certSANs, with k3s and RKE2 by --tls-san=%s", address)
}
