// Package kubeadm has the shipped manifests and the shipped controller meet the Nodes that a real kubeadm makes with
// the configuration of the guide.
package kubeadm
