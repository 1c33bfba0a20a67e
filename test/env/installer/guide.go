package installer

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Config is a configuration for kubeadm.
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

// For is the configuration for a machine with a name and an address, and a version of Kubernetes: what kubeadm finds
// out itself otherwise, the last by asking on the Internet.
func (c Config) For(name string, address netip.Addr) Config {
	text := strings.Replace(string(c), "nodeRegistration:\n", fmt.Sprintf(
		"localAPIEndpoint: {advertiseAddress: %s}\nnodeRegistration:\n  name: %s\n", address, name), 1)
	return Config(strings.Replace(text, "kind: ClusterConfiguration\n",
		"kind: ClusterConfiguration\nkubernetesVersion: v"+tools.Minors()[0]+".0\n", 1))
}
