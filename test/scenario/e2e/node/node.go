// Package node makes of a server of the lab a node with a real containerd and a real kubelet: on the host it gathers
// what they need, on the server it gives them a root file system and starts them.
package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
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
	// Tree are the directories that make up the root file system, the first outweighs the next.
	Tree []string
}

// Paths on the node, as seen by its programs.
const (
	// Images is where OCI archives that are handed over later can be found.
	Images = "/images"

	containerdSocket = "/run/containerd/containerd.sock"
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

// files are the configuration of the node's programs: path there → content.
func (s Spec) files() (map[string][]byte, error) {
	network, err := s.network()
	if err != nil {
		return nil, err
	}
	kubelet, err := s.kubelet()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		networkConfig: network, kubeletConfig: kubelet, containerdConfig: []byte(containerd),
		"/etc/passwd": []byte("root:x:0:0:root:/root:/bin/sh\n"), "/etc/group": []byte("root:x:0:\n"),
		"/etc/hosts": []byte("127.0.0.1 localhost\n"), "/etc/os-release": []byte("NAME=lab\nID=lab\n"),
		"/etc/machine-id": fmt.Appendf(nil, "%032x\n", s.Address.As4()),
	}, nil
}

// network is the configuration of the network plugins: a bridge for the pods of this node; the servers route to each
// other.
func (s Spec) network() ([]byte, error) {
	type object map[string]any
	return json.Marshal(object{
		"cniVersion": "1.0.0", "name": "lab",
		"plugins": []object{{
			"type": "bridge", "bridge": "cni0", "isGateway": true,
			"ipam": object{
				"type": "host-local", "ranges": [][]object{{{"subnet": s.Pods.Masked().String()}}},
				"routes": []object{{"dst": "0.0.0.0/0"}},
			},
		}},
	})
}

// kubelet is the kubelet's configuration (KubeletConfiguration, kubelet.config.k8s.io/v1beta1).
func (s Spec) kubelet() ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false},
			"webhook": map[string]any{"enabled": true}},
		"authorization": map[string]any{"mode": "Webhook"},
		"cgroupDriver":  "cgroupfs", "cgroupRoot": "/" + s.Name, "enforceNodeAllocatable": []string{"none"},
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"failSwapOn":               false, "localStorageCapacityIsolation": false,
		// Two nodes share a machine that is smaller than either believes.
		"evictionHard":                map[string]string{"memory.available": "10Mi"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"resolvConf": "", "clusterDomain": "cluster.local",
	})
}

// containerd is containerd's configuration: no AppArmor, which the machine's kernel lacks, the Debian package's network
// plugins, and a pause image that needs no registry.
const containerd = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`
