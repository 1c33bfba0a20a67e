package installer

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Files that kubeadm reads and writes, as it names them.
const (
	// AdminConfig is the kubeconfig of a cluster administrator.
	AdminConfig = "/etc/kubernetes/admin.conf"
	// KubeletConfig is the configuration of the kubelet.
	KubeletConfig = "/var/lib/kubelet/config.yaml"
	// KubeletFlags has the flags of the kubelet, see ParseFlags.
	KubeletFlags = "/var/lib/kubelet/kubeadm-flags.env"
)

// Config is a configuration for kubeadm, documents of YAML.
type Config string

// Guide is the configuration for kubeadm init that a page shows: its block of YAML with an InitConfiguration.
func Guide(page string) (Config, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		if config, _, ok := strings.Cut(block, "\n```"); ok && strings.Contains(config, "kind: InitConfiguration") {
			return Config(config + "\n"), nil
		}
	}
	return "", fmt.Errorf("%s shows no configuration for kubeadm", page)
}

// Machine is what one machine differs in from others of the cluster.
type Machine struct {
	// Name is that of the Node.
	Name string
	// APIServer is where kubeadm finds the API server.
	APIServer netip.AddrPort
	// Joins makes it a worker, for kubeadm join.
	Joins bool
	// NodeIP is for the kubelet's flag --node-ip, as users set it to an overlay network's address; the zero Addr leaves
	// the flag out.
	NodeIP netip.Addr
	// Taints are those with which the Node registers, beside those of Kubernetes.
	Taints []corev1.Taint
}

// For is the configuration for a machine: what kubeadm finds out itself otherwise, the version of Kubernetes by
// asking on the Internet, and what users change. A worker has the nodeRegistration in a JoinConfiguration.
func (c Config) For(m Machine) (Config, error) {
	var documents []string
	for text := range strings.SplitSeq(string(c), "---\n") {
		document := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			return "", err
		}
		if !m.edit(document) {
			continue
		}
		edited, err := yaml.Marshal(document)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(edited))
	}
	return Config(strings.Join(documents, "---\n")), nil
}

// edit reports whether the machine needs a document.
func (m Machine) edit(document map[string]any) bool {
	if document["kind"] == "ClusterConfiguration" {
		document["kubernetesVersion"] = "v" + tools.Minors()[0] + ".0"
		return !m.Joins
	}
	registration, ok := document["nodeRegistration"].(map[string]any)
	if !ok {
		return true
	}
	registration["name"] = m.Name
	if m.Taints != nil {
		registration["taints"] = m.Taints
	}
	if flags, ok := registration["kubeletExtraArgs"].([]any); ok && m.NodeIP.IsValid() {
		registration["kubeletExtraArgs"] = append(flags, map[string]any{"name": "node-ip", "value": m.NodeIP.String()})
	}
	if m.Joins {
		document["kind"] = "JoinConfiguration"
		document["discovery"] = map[string]any{"file": map[string]any{"kubeConfigPath": AdminConfig}}
		return true
	}
	document["localAPIEndpoint"] = map[string]any{"advertiseAddress": m.APIServer.Addr().String(),
		"bindPort": m.APIServer.Port()}
	return true
}

// ParseFlags are the flags in the content of KubeletFlags, which the phase kubelet-start writes:
// KUBELET_KUBEADM_ARGS="…".
func ParseFlags(content []byte) ([]string, error) {
	value, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "KUBELET_KUBEADM_ARGS=")
	if !ok {
		return nil, fmt.Errorf("%s holds %q, want the variable KUBELET_KUBEADM_ARGS", KubeletFlags, content)
	}
	return strings.Fields(strings.Trim(value, `"`)), nil
}
