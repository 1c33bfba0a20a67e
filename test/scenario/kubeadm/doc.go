// Package kubeadm has a real kubeadm write what it starts a kubelet with, by the configuration of the guide.
package kubeadm
