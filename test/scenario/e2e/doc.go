// Package e2e installs the project as docs/guides/install.md says on a cluster with real kubelets and containerd, uses
// it, upgrades it and removes it again.
package e2e
