// Package services shows Services as users write them: each kind answers clients beyond the gateway, beside a real
// kube-proxy, with the address announced by real servers.
package services
