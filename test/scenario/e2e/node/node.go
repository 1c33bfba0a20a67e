// Package node makes of a server of the lab a node with a real containerd and a real kubelet: on the host it gathers
// what they need, on the server it gives them a root file system and starts them.
package node

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"text/template"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// Spec is what the server has to know.
type Spec struct {
	// Name is the Node's name, Address its private one, of which no kubelet is informed.
	Name    string
	Address netip.Addr
	// Pods is the network of the node's pods.
	Pods netip.Prefix
	// Kubeadm is the configuration with which kubeadm makes the machine a node. Joins has it run kubeadm join in
	// place of kubeadm init.
	Kubeadm installer.Config
	Joins   bool
	// CA is the certificate of the cluster's authority, CAKey its private key: without it, kubeadm init expects all
	// certificates that it could make with it.
	CA, CAKey []byte
	// Kubeconfig is the kubelet's, Admin that of kubeadm: files of the lab.
	Kubeconfig, Admin string
	// Images are OCI archives, files of the lab, that containerd is given before the kubelet starts.
	Images []string
	// Names are more names of those images: name → the one that the archive carries.
	Names map[string]string
	// Tree are the directories that make up the root file system, the first outweighs the next.
	Tree []string
}

// Paths on the node, as seen by its programs.
const (
	// Images is where OCI archives that are handed over later can be found.
	Images = "/images"

	// As kubeadm and its packages have them. What the lab needs beyond that is merged from kubeletMore.
	kubeadmConfig    = "/etc/kubernetes/kubeadm.yaml"
	kubeletAccess    = "/etc/kubernetes/kubelet.conf"
	bootstrapAccess  = "/etc/kubernetes/bootstrap-kubelet.conf"
	authority        = "/etc/kubernetes/pki/ca.crt"
	authorityKey     = "/etc/kubernetes/pki/ca.key"
	kubeletMore      = "/etc/kubernetes/kubelet.conf.d"
	networkConfig    = "/etc/cni/net.d/10-lab.conflist"
	containerdConfig = "/etc/containerd/config.toml"
	// PauseImage is the name of the image of command pause.
	PauseImage = "local.test/pause:e2e"

	kubeadm = "/usr/bin/kubeadm"
)

// Root is where the server sees the root file system of its node.
const Root = "/run/node"

// OnServer is how the server names a path of the node.
func OnServer(path string) string { return filepath.Join(Root, path) }

//go:embed network.json kubelet.yaml containerd.toml
var templates embed.FS

// KubeadmInit is the command line on the server of a phase of kubeadm init, such as mark-control-plane. A shell starts
// it, because only the mounts of the server show kubeadm.
func KubeadmInit(phase ...string) []string {
	return slices.Concat([]string{"sh", "-c", `exec "$0" "$@"`, OnServer(kubeadm), "init", "phase"}, phase,
		[]string{"--config=" + kubeadmConfig, "--rootfs=" + Root})
}

// files are the configuration of the node's programs: path there → content. The network plugins make a bridge for the
// pods of this node; the servers route to each other. The kubelet has the configuration that kubeadm writes
// (KubeletConfiguration, kubelet.config.k8s.io/v1beta1) and, on top of it, what two nodes on one machine need.
func (s Spec) files() (map[string][]byte, error) {
	files := map[string][]byte{
		"/etc/passwd": []byte("root:x:0:0:root:/root:/bin/sh\n"), "/etc/group": []byte("root:x:0:\n"),
		"/etc/hosts": []byte("127.0.0.1 localhost\n"), "/etc/os-release": []byte("NAME=lab\nID=lab\n"),
		// No name server answers there, but CoreDNS does not start without any.
		"/etc/resolv.conf": fmt.Appendf(nil, "nameserver %s\n", wire.ManagementAddress.Addr()),
		"/etc/machine-id":  fmt.Appendf(nil, "%032x\n", s.Address.As4()),
		kubeadmConfig:      []byte(s.Kubeadm), authority: s.CA,
	}
	if !s.Joins {
		files[authorityKey] = s.CAKey
	}
	all, err := template.ParseFS(templates, "*")
	if err != nil {
		return nil, err
	}
	for path, name := range map[string]string{
		networkConfig: "network.json", kubeletMore + "/10-lab.conf": "kubelet.yaml",
		containerdConfig: "containerd.toml",
	} {
		var text bytes.Buffer
		if err := all.ExecuteTemplate(&text, name, s); err != nil {
			return nil, err
		}
		files[path] = text.Bytes()
	}
	return files, nil
}
