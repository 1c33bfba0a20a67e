package pnap

import (
	"crypto/x509"
	"errors"
	"net/http"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Scopes are the API scopes that the credentials need, in words.
const Scopes = "bmc, bmc.read, tags and tags.read"

// IsPaused reports whether the API requires the client to wait: it answered 429, or the pause is not over yet.
func IsPaused(err error) bool {
	return statusOf(err) == http.StatusTooManyRequests || errors.Is(err, errPaused)
}

// errCredentials is the remedy when the token endpoint refuses the client.
var errCredentials = errors.New("check the client ID and the client secret")

// IsUnauthenticated reports whether phoenixNAP refused the credentials: it answered 401, or gave no token for them.
func IsUnauthenticated(err error) bool {
	return statusOf(err) == http.StatusUnauthorized || errors.Is(err, errCredentials)
}

// IsRepeated reports whether the request was not sent because the same one had just failed. The error of that one says
// more.
func IsRepeated(err error) bool { return errors.Is(err, errRepeated) }

// Explain returns an error in the words of the API, and what to do. It is the same for each attempt.
func Explain(err error) string {
	said := err.Error()
	if e, ok := errors.AsType[*Error](err); ok {
		said = e.Error()
	}
	return text.Stable(said) + "; " + Remedy(err)
}

// What to do about a certificate that is not accepted, of the API, the token endpoint or a proxy.
const (
	trustAuthority = "have the controller trust the certificate authority of the proxy or API that it reaches: " +
		"controller.trustedCA of the chart, or deploy/components/trusted-ca (docs/guides/install.md)"
	correctHost = "set --base-url and --token-url to a host name of the certificate, or have the proxy present one " +
		"for the name"
	correctClock = "check the clock of the node, and renew the certificate of the proxy or API"
)

// certificateRemedy returns what to do about a certificate that is not accepted, and nothing for other errors.
func certificateRemedy(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return trustAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return correctHost
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return correctClock
	}
	return ""
}

// withCertificateRemedy returns the text of an error, with what to do about a certificate.
func withCertificateRemedy(err error) string {
	if remedy := certificateRemedy(err); remedy != "" {
		return err.Error() + "; " + remedy
	}
	return err.Error()
}

// Remedy returns what to do about an error of a request. There are few: they also distinguish kinds of failures.
func Remedy(err error) string {
	const again = "the controller tries again by itself"
	e, ok := errors.AsType[*Error](err)
	certificate := certificateRemedy(err)
	switch {
	case certificate != "":
		return certificate
	case IsPaused(err):
		return "the controller continues by itself; if this lasts, lower --api-requests-per-second"
	case !ok, e.unsent():
		return again
	case e.StatusCode == http.StatusUnauthorized:
		return errCredentials.Error()
	case IsInaccessible(err):
		return "check that the credentials belong to the account that owns the public network and the servers, and " +
			"have the scopes " + Scopes
	case e.StatusCode == 0:
		return again + "; if this lasts, check that its pod can reach the phoenixNAP API (DNS, proxy, firewall)"
	default:
		return again + "; if this lasts, ask the support of phoenixNAP"
	}
}
