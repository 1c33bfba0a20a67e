// Package zone runs a real kube-scheduler beside the shipped controller: Deployments that are spread over zones.
package zone
