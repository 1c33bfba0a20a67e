package vip

import corev1 "k8s.io/api/core/v1"

// StaleAddresses are the addresses that this node's kernel carries as announcers add them and that no Service has.
func StaleAddresses(services []*corev1.Service, view View) []Target {
	var found []Target
	for _, s := range subjects(services, view, nil) {
		if s.phase == gone {
			found = append(found, s.Target)
		}
	}
	return found
}
