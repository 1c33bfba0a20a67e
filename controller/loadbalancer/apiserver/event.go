package apiserver

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
