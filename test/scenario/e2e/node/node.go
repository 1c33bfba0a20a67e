// Package node makes of a server of the lab a node with a real containerd and a real kubelet: on the host it gathers
// what they need, on the server it gives them a root file system and starts them.
package node

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"path/filepath"
	"text/template"
)

// Spec is what the server has to know.
type Spec struct {
	// Name is the Node's name, Address its InternalIP.
	Name    string
	Address netip.Addr
	// Pods is the network of the node's pods.
	Pods netip.Prefix
	// Labels are what the kubelet puts onto its Node when it registers.
	Labels map[string]string
	// Kubeconfig is the kubelet's, a file of the lab.
	Kubeconfig string
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

	kubeletConfig    = "/etc/kubernetes/kubelet.yaml"
	kubeletAccess    = "/etc/kubernetes/kubelet.kubeconfig"
	networkConfig    = "/etc/cni/net.d/10-lab.conflist"
	containerdConfig = "/etc/containerd/config.toml"
	// PauseImage is the name of the image of command pause.
	PauseImage = "local.test/pause:e2e"
)

// Root is where the server sees the root file system of its node.
const Root = "/run/node"

// OnServer is how the server names a path of the node.
func OnServer(path string) string { return filepath.Join(Root, path) }

//go:embed network.json kubelet.yaml containerd.toml
var templates embed.FS

// files are the configuration of the node's programs: path there → content. The network plugins make a bridge for the
// pods of this node; the servers route to each other. The kubelet's is a KubeletConfiguration,
// kubelet.config.k8s.io/v1beta1.
func (s Spec) files() (map[string][]byte, error) {
	files := map[string][]byte{
		"/etc/passwd": []byte("root:x:0:0:root:/root:/bin/sh\n"), "/etc/group": []byte("root:x:0:\n"),
		"/etc/hosts": []byte("127.0.0.1 localhost\n"), "/etc/os-release": []byte("NAME=lab\nID=lab\n"),
		"/etc/machine-id": fmt.Appendf(nil, "%032x\n", s.Address.As4()),
	}
	all, err := template.ParseFS(templates, "*")
	if err != nil {
		return nil, err
	}
	for path, name := range map[string]string{
		networkConfig: "network.json", kubeletConfig: "kubelet.yaml", containerdConfig: "containerd.toml",
	} {
		var text bytes.Buffer
		if err := all.ExecuteTemplate(&text, name, s); err != nil {
			return nil, err
		}
		files[path] = text.Bytes()
	}
	return files, nil
}
