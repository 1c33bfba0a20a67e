//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Flannel is the network plugin of https://github.com/flannel-io/flannel, as its own manifest configures it.
const Flannel = "flannel"

// Names of Flannel's manifest, and of what the lab hands over to the servers.
const (
	flannelManifest  = "Documentation/kube-flannel.yml"
	flannelNamespace = "kube-flannel"
	flannelAccount   = "flannel"
	flannelConfigMap = "kube-flannel-cfg"
	flannelNetwork   = "net-conf.json"
	flannelCNI       = "cni-conf.json"
	cniPath          = "cni"
	cniConfig        = "10-flannel.conflist"
	xtablesFile      = "xtables"
)

// flannelPrograms are those of the system that Flannel calls.
var flannelPrograms = []string{"iptables", "iptables-save", "iptables-restore"}

// flannelStart is what Flannel may take on a busy emulated machine until its node has a subnet.
const flannelStart = 2 * time.Minute

// flannelKubeconfig is the name of the kubeconfig of a server's Flannel.
func flannelKubeconfig(server string) string { return "flannel-" + server + ".kubeconfig" }

// PrepareCNI builds what a network plugin of Options needs, which takes minutes the first time.
func PrepareCNI(ctx context.Context, name string) error {
	if err := checkCNI(name); err != nil || name == "" {
		return err
	}
	return addFlannel(ctx, map[string]string{})
}

func checkCNI(name string) error {
	if name != "" && name != Flannel {
		return fmt.Errorf("network plugin %q: choose %s, or none for routes that the lab makes itself", name, Flannel)
	}
	return nil
}

// addFlannel adds to the files of the servers what Flannel's images hold: its daemon and the network plugins.
func addFlannel(ctx context.Context, files map[string]string) (err error) {
	if files[xtablesFile], err = tools.IPTablesExtensions(ctx); err != nil {
		return err
	}
	programs := map[string]string{tools.Flannel: tools.Flannel, tools.CNITool: tools.CNITool}
	for _, plugin := range tools.CNIPlugins() {
		programs[path.Join(cniPath, plugin)] = plugin
	}
	for there, name := range programs {
		if files[there], err = tools.Binary(ctx, name); err != nil {
			return fmt.Errorf("program %s of the servers: %w", name, err)
		}
	}
	return nil
}

// installFlannel applies Flannel's manifest as its users do.
func (c *Cluster) installFlannel(ctx context.Context) error {
	manifest, err := tools.SourceFile(ctx, tools.Flannel, flannelManifest)
	if err != nil {
		return err
	}
	if c.flannel, err = loadWorkload(manifest); err != nil {
		return err
	}
	return c.ControlPlane.ApplyFiles(ctx, manifest)
}

// connectPod does on a server what follows from Flannel's DaemonSet and from a pod's start: the Node gets its part of
// the network, as from kube-controller-manager, the daemon runs, and the pod is connected, as by a container runtime.
func (c *Cluster) connectPod(ctx context.Context, s Server) error {
	subnet := s.Pods.Masked().String()
	patch := fmt.Appendf(nil, `{"spec": {"podCIDR": %q, "podCIDRs": [%q]}}`, subnet, subnet)
	if _, err := c.Kube.CoreV1().Nodes().Patch(ctx, s.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("give it %s: %w", subnet, err)
	}
	config, err := c.Kube.CoreV1().ConfigMaps(flannelNamespace).Get(ctx, flannelConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	network, err := c.writeFlannel(ctx, config)
	if err != nil {
		return err
	}
	if err := c.startFlannel(ctx, s); err != nil {
		return err
	}
	return c.addToNetwork(ctx, s, network)
}

// writeFlannel hands the configuration over to the servers, and returns the name of the network. The plugin of Flannel
// whose module can be had knows version 0.4.0 of the CNI specification as its newest.
func (c *Cluster) writeFlannel(ctx context.Context, config *corev1.ConfigMap) (string, error) {
	var plugins map[string]any
	if err := json.Unmarshal([]byte(config.Data[flannelCNI]), &plugins); err != nil {
		return "", fmt.Errorf("%s of %s: %w", flannelCNI, config.Name, err)
	}
	name, _ := plugins["name"].(string)
	plugins["cniVersion"] = "0.4.0"
	chain, err := json.Marshal(plugins)
	if err != nil {
		return "", err
	}
	if err := c.Lab.WriteFile(ctx, cniConfig, chain, 0o644); err != nil {
		return "", err
	}
	return name, c.Lab.WriteFile(ctx, flannelNetwork, []byte(config.Data[flannelNetwork]), 0o644)
}

// startFlannel starts the daemon and waits until the server has its subnet.
func (c *Cluster) startFlannel(ctx context.Context, s Server) error {
	if out, err := c.Lab.Exec(ctx, s.Name, "busybox", "modprobe", "-a", "br_netfilter", "vxlan"); err != nil ||
		out.Code != 0 {
		return fmt.Errorf("kernel modules: exit code %d, %s: %w", out.Code, out.Stderr, err)
	}
	env, err := c.flannel.environment(s.Name, map[string]string{
		"POD_NAME": flannelAccount + "-" + s.Name, "POD_NAMESPACE": flannelNamespace,
		"XTABLES_LIBDIR": lab.Path(xtablesFile),
	})
	if err != nil {
		return err
	}
	if _, err := c.Lab.StartProcess(ctx, lab.Program{Host: s.Name, Name: tools.Flannel + "-" + s.Name, Env: env,
		Args: restarted(slices.Concat([]string{lab.Path(tools.Flannel)}, c.flannel.container.Args, []string{
			"--kubeconfig-file=" + lab.Path(flannelKubeconfig(s.Name)),
			"--net-config-path=" + lab.Path(flannelNetwork),
			// Else it takes the interface of the default route: the public network, open to all who are in it, and gone
			// with the VLAN.
			"--iface-can-reach=" + management.Addr().String(),
		})...)}); err != nil {
		return err
	}
	if err := wait.PollUntilContextTimeout(ctx, time.Second/4, flannelStart, true,
		func(ctx context.Context) (bool, error) {
			_, err := c.Lab.ReadFile(ctx, s.Name, "/run/flannel/subnet.env")
			return err == nil, nil
		}); err != nil {
		return fmt.Errorf("wait for its subnet: %w", err)
	}
	return nil
}

// addToNetwork has the network plugins connect the pod in which the backend runs. Its address is what PodAddress says.
func (c *Cluster) addToNetwork(ctx context.Context, s Server, network string) error {
	inside, err := c.Lab.Processes(ctx, lab.PodOf(s.Name))
	if err != nil {
		return err
	}
	if len(inside) == 0 {
		return errors.New("no program runs in it")
	}
	out, err := c.Lab.ExecProgram(ctx, lab.Program{Host: s.Name,
		Args: []string{lab.Path(tools.CNITool), "add", network, fmt.Sprintf("/proc/%d/ns/net", inside[0].PID)},
		Env: []string{"CNI_PATH=" + lab.Path(cniPath), "NETCONFPATH=" + lab.Path(""),
			"XTABLES_LIBDIR=" + lab.Path(xtablesFile), "CNI_ARGS=IgnoreUnknown=1;IP=" + s.PodAddress().String()}})
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("%s ended with %d: %s%s", tools.CNITool, out.Code, out.Stdout, out.Stderr)
	}
	return err
}
