package service

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// proxyProtocol are the annotations by which other clouds are asked to speak the PROXY protocol. An
// address that is announced over ARP has no proxy in between; a backend that waits for the header would
// drop every connection. The function of each reports whether its value asks for the protocol.
func proxyProtocol() map[string]func(value string) bool {
	return map[string]func(string) bool{
		"service.beta.kubernetes.io/aws-load-balancer-proxy-protocol": isOn,
		"service.beta.kubernetes.io/aws-load-balancer-target-group-attributes": contains(
			"proxy_protocol_v2.enabled=true"),
		"service.beta.kubernetes.io/azure-pls-proxy-protocol":                            isOn,
		"service.beta.kubernetes.io/brightbox-load-balancer-listener-proxy-protocol":     isOn,
		"service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol":               isOn,
		"service.beta.kubernetes.io/linode-loadbalancer-default-proxy-protocol":          isOn,
		"service.beta.kubernetes.io/oci-load-balancer-connection-proxy-protocol-version": isOn,
		"oci-network-load-balancer.oraclecloud.com/is-ppv2-enabled":                      isOn,
		"service.beta.kubernetes.io/ovh-loadbalancer-proxy-protocol":                     isOn,
		"service.beta.kubernetes.io/scw-loadbalancer-proxy-protocol-v1":                  isOn,
		"service.beta.kubernetes.io/scw-loadbalancer-proxy-protocol-v2":                  isOn,
		"service.beta.kubernetes.io/vultr-loadbalancer-proxy-protocol":                   isOn,
		"load-balancer.hetzner.cloud/uses-proxyprotocol":                                 isOn,
		"loadbalancer.openstack.org/proxy-protocol":                                      isOn,
		"kubernetes.civo.com/loadbalancer-enable-proxy-protocol":                         isOn,
		"k8s.cloudscale.ch/loadbalancer-pool-protocol":                                   contains("proxy"),
	}
}

// isOn reads the values by which an annotation is switched on: anything but a way to say no.
func isOn(value string) bool {
	return !slices.Contains([]string{"", "false", "none", "off", "no", "0", "disabled"},
		strings.ToLower(strings.TrimSpace(value)))
}

func contains(part string) func(string) bool {
	return func(value string) bool { return strings.Contains(strings.ToLower(value), part) }
}

// unsupported says why the Service cannot be served and what to do instead; empty when it can.
func unsupported(service *corev1.Service) string {
	if policy := service.Spec.IPFamilyPolicy; policy != nil && *policy == corev1.IPFamilyPolicyRequireDualStack {
		return "ipFamilyPolicy RequireDualStack: load balancers are IPv4 only; set SingleStack or PreferDualStack"
	}
	if families := service.Spec.IPFamilies; len(families) > 0 && !slices.Contains(families, corev1.IPv4Protocol) {
		return "ipFamilies [IPv6]: load balancers are IPv4 only; set ipFamilies to [IPv4]"
	}
	known := proxyProtocol()
	for _, name := range slices.Sorted(maps.Keys(service.Annotations)) {
		if asked := known[name]; asked != nil && asked(service.Annotations[name]) {
			return fmt.Sprintf("annotation %s=%q: there is no proxy that could send the PROXY protocol; remove the "+
				"annotation, and set externalTrafficPolicy: Local to keep the clients' addresses", name,
				service.Annotations[name])
		}
	}
	return ""
}

// servedInPart reports whether the Service asks for IPv6 too, which it does not get.
func servedInPart(service *corev1.Service) bool {
	return slices.Contains(service.Spec.IPFamilies, corev1.IPv6Protocol)
}
