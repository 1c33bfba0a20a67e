//go:build linux

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// realNetwork is the network lab with the server that is measured and two that stand for the rest.
type realNetwork struct {
	*setting
	lab *lab.Lab
	pid int
}

// startNetwork builds it: VLAN, gateway with an address in every block, pod interfaces, the addresses of the Services
// on the announcing server, and a third server that asks for them.
func startNetwork(ctx context.Context, c *setting) (*realNetwork, error) {
	url := "https://" + netip.AddrPortFrom(management.Addr(), uint16(c.plane.Port())).String()
	kubeconfig, err := c.kubeconfig(ctx, url)
	if err != nil {
		return nil, err
	}
	program, err := tools.Product(ctx, "./agent")
	if err != nil {
		return nil, err
	}
	announce, err := tools.Product(ctx, "./test/bench/agent/cmd/announce")
	if err != nil {
		return nil, err
	}
	n := &realNetwork{setting: c}
	config := lab.Config{
		HostPorts: []uint16{uint16(c.plane.Port())},
		Files:     map[string]string{"agent": program, "announce": announce, "kubeconfig": kubeconfig},
		Programs:  []string{"ip", "bridge", "setpriv"},
	}
	for i, name := range []string{server, announcer, client} {
		config.Servers = append(config.Servers, lab.Server{
			Name: name, ID: fmt.Sprintf("%s%d", serverID[:23], i),
			Private: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}), 24),
			Pods:    netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(i), 0}), 24),
		})
	}
	if n.lab, err = lab.Start(ctx, config); err != nil {
		return nil, err
	}
	if err := n.setUp(ctx); err != nil {
		return nil, fmt.Errorf("%w (%w)", err, n.lab.Stop())
	}
	return n, nil
}

// setUp opens the VLAN and puts addresses and interfaces where they belong.
func (n *realNetwork) setUp(ctx context.Context) error {
	if err := n.batch(ctx, lab.Switch, "bridge", openPorts()); err != nil {
		return err
	}
	if err := n.batch(ctx, lab.Gateway, "ip", gatewayLinks()); err != nil {
		return err
	}
	gateway := blocks()[0].Gateway
	for name, address := range map[string]netip.Prefix{server: ownAddress, announcer: nextAddress,
		client: clientAddress} {
		if err := n.lab.ConfigureVLAN(ctx, lab.VLAN{Server: name, ID: vlanID, Address: address,
			Gateway: gateway}); err != nil {
			return err
		}
	}
	virtual, err := addresses(n.Services)
	if err != nil {
		return err
	}
	if err := n.batch(ctx, announcer, "ip", announced(virtual)); err != nil {
		return err
	}
	if err := n.startRest(ctx, virtual); err != nil {
		return err
	}
	return n.makePods(ctx)
}

// startRest starts what is heard of the rest of the cluster: kube-vip's announcements, and the questions of other
// agents, of which one in half a minute asks for an address and the others let theirs wait.
func (n *realNetwork) startRest(ctx context.Context, virtual []netip.Addr) error {
	var all []string
	for _, address := range virtual {
		all = append(all, address.String())
	}
	for host, flags := range map[string][]string{announcer: {"--every", "3s"},
		client: {"--every", "30s", "--ask-from", clientAddress.Addr().String()}} {
		args := slices.Concat([]string{lab.Path("announce"), "--interface", vlanLink}, flags, all)
		if _, err := n.lab.StartProcess(ctx, lab.Program{Host: host, Name: "announce-" + host,
			Args: args}); err != nil {
			return fmt.Errorf("start what is heard from %s: %w", host, err)
		}
	}
	return nil
}

func openPorts() string {
	var b strings.Builder
	for _, port := range []string{"gateway", server, announcer, client} {
		fmt.Fprintf(&b, "vlan add dev p-%s vid %d\n", port, vlanID)
	}
	return b.String()
}

func gatewayLinks() string {
	var b strings.Builder
	fmt.Fprintf(&b, "link add link eth0 name eth0.%d type vlan id %d\nlink set eth0.%d up\n", vlanID, vlanID, vlanID)
	for _, block := range blocks() {
		fmt.Fprintf(&b, "address add %s/%d dev eth0.%d\n", block.Gateway, block.CIDR.Bits(), vlanID)
	}
	return b.String()
}

// announced puts addresses on the interface as kube-vip does.
func announced(virtual []netip.Addr) string {
	var b strings.Builder
	for _, address := range virtual {
		fmt.Fprintf(&b, "address add %s/32 dev %s preferred_lft 0\n", address, vlanLink)
	}
	return b.String()
}

// podLinks are interfaces with host routes, as network plugins make them; their far ends are in the network namespace
// of a process.
func podLinks(count, process int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b,
			"link add cali%04d type veth peer name pod%04d netns %d\nlink set cali%04d up\nroute add 10.200.%d.%d/32 "+
				"dev cali%04d\n",
			i, i, process, i, i/250, i%250+1, i)
	}
	return b.String()
}

// makePods starts a process in the server's pod and makes the interfaces between both.
func (n *realNetwork) makePods(ctx context.Context) error {
	n.say("making %d pod interfaces", n.Pods)
	id, err := n.lab.StartProcess(ctx, lab.Program{Host: lab.PodOf(server), Name: "pod",
		Args: []string{"sleep", "86400"}})
	if err != nil {
		return fmt.Errorf("start a pod: %w", err)
	}
	pod, err := n.lab.Await(ctx, id, 0)
	if err != nil {
		return fmt.Errorf("start a pod: %w", err)
	}
	return n.batch(ctx, server, "ip", podLinks(n.Pods, pod.PID))
}

// batch runs lines of ip or bridge on a host.
func (n *realNetwork) batch(ctx context.Context, host, program, lines string) error {
	out, err := n.lab.ExecProgram(ctx, lab.Program{Host: host, Args: []string{program, "-batch", "-"},
		Stdin: []byte(lines)})
	if err != nil {
		return fmt.Errorf("set %s up: %w", host, err)
	}
	if out.Code != 0 {
		return fmt.Errorf("set %s up: %s", host, out.Stderr)
	}
	return nil
}

// startAgent starts the agent with the one capability of its container.
func (n *realNetwork) startAgent(ctx context.Context) error {
	id, err := n.lab.StartProcess(ctx, lab.Program{Host: server, Name: "agent", Args: append(asPod(),
		lab.Path("agent"), "run", "--node-name", server, "--kubeconfig", lab.Path("kubeconfig"))})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	process, err := n.lab.Await(ctx, id, 0)
	n.pid = process.PID
	return err
}

// asPod leaves a program the one capability that the agent's container has.
func asPod() []string {
	return []string{"setpriv", "--bounding-set", "-all,+net_raw", "--inh-caps", "-all", "--no-new-privs"}
}

func (n *realNetwork) keepLog(ctx context.Context) error {
	raw, err := n.lab.Log(ctx, "agent")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.Dir, "agent.log"), raw, 0o600)
}
