//go:build linux

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Names of the files that the servers find in the lab's directory.
const (
	kubeVIPFile = "kube-vip"
	proxyFile   = "kube-proxy"
	agentFile   = "phoenixnap-agent"
	backendFile = "backend"
	proxyConfig = "kube-proxy.kubeconfig"
	kubeVIPHome = "kube-vip"
	servicePort = 80
)

// Ports on which the backend of every server listens: the first for HTTP and for UDP, the other for HTTP.
const (
	BackendPort      = 8080
	OtherBackendPort = 8081
)

// StartServers builds the network with the servers, each with the programs that it will need, and configures
// their VLAN interfaces as the user would, where the servers have an address for them.
func (c *Cluster) StartServers(ctx context.Context) error {
	files, err := c.serverFiles(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.options.Dir, "lab.log"))
	if err != nil {
		return fmt.Errorf("log of the lab: %w", err)
	}
	config := lab.Config{
		HostPorts: []uint16{uint16(c.ControlPlane.Port())},
		FeedURL:   c.Sim.URL, Files: files, Programs: append([]string{"nft", "setpriv"}, c.options.Programs...),
		Log:       log,
		MemoryMiB: c.options.MemoryMiB, ClientPrivate: c.options.ClientPrivate,
	}
	if c.options.Kubelets {
		port, err := c.Sim.port()
		if err != nil {
			return err
		}
		config.Machine, config.HostPorts = true, append(config.HostPorts, port)
	}
	if c.options.CNI == Flannel {
		config.NetworkPlugin = true
		config.Machine = true
		config.Programs = append(config.Programs, flannelPrograms...)
	}
	for _, s := range c.Servers {
		config.Servers = append(config.Servers, s.Server)
	}
	if c.Lab, err = lab.Start(ctx, config); err != nil {
		return fmt.Errorf("%w (its log: %s)", err, log.Name())
	}
	if c.options.Kubelets {
		if err := c.serveEgress(ctx); err != nil {
			return err
		}
	}
	return c.each(ctx, c.configureVLANs)
}

// configureVLANs configures the VLAN interfaces of a server, with a default route by the first.
func (c *Cluster) configureVLANs(ctx context.Context, s Server) error {
	for i, m := range s.memberships() {
		vlan := lab.VLAN{Server: s.Name, ID: m.vlan, Address: m.address}
		if i == 0 {
			vlan.Gateway = m.gateway()
		}
		if err := c.Lab.ConfigureVLAN(ctx, vlan); err != nil {
			return fmt.Errorf("configure VLAN %d on %s: %w", m.vlan, s.Name, err)
		}
	}
	return nil
}

// serverFiles are the programs and kubeconfigs of the servers: name in the lab → path on this machine.
func (c *Cluster) serverFiles(ctx context.Context) (map[string]string, error) {
	files := map[string]string{}
	maps.Copy(files, c.options.Files)
	for name, build := range map[string]func() (string, error){
		kubeVIPFile + ".bin": func() (string, error) { return tools.KubeVIP(ctx, c.options.KubeVIP) },
		proxyFile:            func() (string, error) { return tools.Binary(ctx, "kube-proxy") },
		agentFile: func() (string, error) {
			return tools.TaggedProduct(ctx, "./agent", c.options.AgentTags...)
		},
		backendFile: func() (string, error) { return tools.Product(ctx, "./test/env/cluster/cmd/backend") },
	} {
		if c.options.Kubelets && name != proxyFile || c.options.Announcer == contract.AnnouncerAgent &&
			name == kubeVIPFile+".bin" {
			continue
		}
		path, err := build()
		if err != nil {
			return nil, fmt.Errorf("program %s of the servers: %w", name, err)
		}
		files[name] = path
	}
	if c.options.CNI == Flannel {
		if err := addFlannel(ctx, files); err != nil {
			return nil, err
		}
	}
	for name, user := range c.users() {
		config, err := user(ctx)
		if err != nil {
			return nil, fmt.Errorf("credentials %s: %w", name, err)
		}
		path := filepath.Join(c.options.Dir, "servers", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("credentials %s: %w", name, err)
		}
		if err := controlplane.WriteKubeconfig(path, config, c.apiServerFromServers()); err != nil {
			return nil, fmt.Errorf("credentials %s: %w", name, err)
		}
		files[name] = path
	}
	return files, nil
}

// users are whom the servers' programs are for the API server, by the name of the kubeconfig. Each agent and each
// kube-vip is the pod on its own Node.
func (c *Cluster) users() map[string]func(context.Context) (*rest.Config, error) {
	users := map[string]func(context.Context) (*rest.Config, error){
		proxyConfig: func(context.Context) (*rest.Config, error) { return c.ControlPlane.User("system:kube-proxy") },
	}
	if c.options.Kubelets {
		users[AdminConfig] = func(context.Context) (*rest.Config, error) { return c.ControlPlane.Config(), nil }
		for _, s := range c.Servers {
			users[KubeletConfig(s.Name)] = func(context.Context) (*rest.Config, error) { return c.nodeConfig(s.Name) }
		}
		return users
	}
	for _, s := range c.Servers {
		if c.options.Announcer != contract.AnnouncerAgent {
			users[kubeVIPConfig(s.Name)] = func(ctx context.Context) (*rest.Config, error) {
				return c.ControlPlane.ServiceAccountOn(ctx, kubeSystem, kubeVIPAccount, s.Name)
			}
		}
		users[agentConfig(s.Name)] = func(ctx context.Context) (*rest.Config, error) {
			return c.ControlPlane.ServiceAccountOn(ctx, kubeSystem, agentAccount, s.Name)
		}
		if c.options.CNI == Flannel {
			users[flannelKubeconfig(s.Name)] = func(ctx context.Context) (*rest.Config, error) {
				return c.ControlPlane.ServiceAccountOn(ctx, flannelNamespace, flannelAccount, s.Name)
			}
		}
	}
	return users
}

// kubeVIPConfig is the name of the kubeconfig of a server's kube-vip.
func kubeVIPConfig(server string) string { return kubeVIPHome + "-" + server + "/.kube/config" }

// agentConfig is the name of the kubeconfig of a server's agent.
func agentConfig(server string) string { return "agent-" + server + ".kubeconfig" }

// apiServerFromServers is where the servers reach the API server: over their private network.
func (c *Cluster) apiServerFromServers() string {
	return "https://" + c.APIServer().String()
}

// each calls a function for every server until one fails.
func (c *Cluster) each(ctx context.Context, call func(context.Context, Server) error) error {
	for _, s := range c.Servers {
		if err := call(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program on a host.
func (c *Cluster) start(ctx context.Context, host, name string, args ...string) error {
	if _, err := c.Lab.StartProcess(ctx, lab.Program{Host: host, Name: name, Args: args}); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// JoinServers registers the servers as Nodes, as their kubelets would, and starts kube-proxy and a backend on each.
func (c *Cluster) JoinServers(ctx context.Context) error {
	if err := c.RegisterNodes(ctx); err != nil {
		return err
	}
	return c.each(ctx, c.StartPrograms)
}

// RegisterNodes registers the servers as Nodes, as their kubelets would; nothing runs on them.
func (c *Cluster) RegisterNodes(ctx context.Context) error {
	return c.each(ctx, c.RegisterNode)
}

// RegisterNode registers one server as a Node and keeps that ready.
func (c *Cluster) RegisterNode(ctx context.Context, s Server) error {
	config, err := c.nodeConfig(s.Name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of node %s: %w", s.Name, err)
	}
	k := &kubelet{client: client, name: s.Name, ip: s.Private.Addr()}
	if err := k.register(ctx); err != nil {
		return err
	}
	c.beat(ctx, k)
	return nil
}

// StartPrograms starts kube-proxy and a backend on a server, whose pod it connects.
func (c *Cluster) StartPrograms(ctx context.Context, s Server) error {
	if err := c.StartBackend(ctx, lab.PodOf(s.Name), s.Name); err != nil {
		return err
	}
	if c.options.CNI == Flannel {
		if err := c.connectPod(ctx, s); err != nil {
			return fmt.Errorf("connect the pod of %s with Flannel: %w", s.Name, err)
		}
	}
	return c.StartProxy(ctx, s)
}

// StartBackend starts a backend on a host, which answers that it is of a name.
func (c *Cluster) StartBackend(ctx context.Context, host, name string) error {
	return c.start(ctx, host, "backend-"+name,
		lab.Path(backendFile), "--listen", fmt.Sprintf(":%d,:%d", BackendPort, OtherBackendPort), "--udp",
		fmt.Sprintf(":%d", BackendPort), "--name", name)
}

// StartProxy starts kube-proxy on a server.
func (c *Cluster) StartProxy(ctx context.Context, s Server) error {
	// Makes the kernel load nf_tables: two kube-proxies that ask for it at the same instant may be refused.
	if out, err := c.Lab.Exec(ctx, s.Name, "nft", "list", "tables"); err != nil || out.Code != 0 {
		return fmt.Errorf("nftables on %s: exit code %d, %s: %w", s.Name, out.Code, out.Stderr, err)
	}
	return c.start(ctx, s.Name, "kube-proxy-"+s.Name, restarted(
		lab.Path(proxyFile), "--kubeconfig="+lab.Path(proxyConfig), "--hostname-override="+s.Name,
		"--proxy-mode=nftables", "--cluster-cidr="+podRange.String(),
		// The kernel's limits are not the namespace's to change.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249")...)
}

// restarted runs a program again whenever it ends, as the kubelet does. kube-proxy ends by itself when the addresses of
// its Node change, which they do when a cloud provider initializes it (pkg/proxy/node.go of Kubernetes 1.37).
func restarted(program ...string) []string {
	return append([]string{"sh", "-c", `while :; do "$@"; echo "$1 ended with $?"; sleep 1; done`, "sh"}, program...)
}

// asPod leaves a program the capabilities that the agent's container has, as a container runtime does.
func asPod(capabilities string) []string {
	return []string{"setpriv", "--bounding-set", "-all," + capabilities, "--inh-caps", "-all", "--no-new-privs"}
}

// StartAgents starts the shipped agent on every server as the ServiceAccount of its manifest.
func (c *Cluster) StartAgents(ctx context.Context) error {
	return c.each(ctx, c.StartAgent)
}

// StartAgent starts the shipped agent on one server.
func (c *Cluster) StartAgent(ctx context.Context, s Server) error {
	capabilities := "+net_raw"
	flags := c.options.AgentFlags
	if c.options.Auto {
		flags = append([]string{"--manage=vlan,return-path"}, flags...)
	}
	if slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--manage=") }) {
		capabilities += ",+net_admin"
	}
	return c.start(ctx, s.Name, "agent-"+s.Name,
		slices.Concat(asPod(capabilities), c.agentCommand("run", s.Name), flags)...)
}

// Diagnose runs `agent diagnose` on a server.
func (c *Cluster) Diagnose(ctx context.Context, server string, flags ...string) (lab.Output, error) {
	return c.Lab.Exec(ctx, server, append(c.agentCommand("diagnose", server), flags...)...)
}

// DiagnoseOnTerminal runs `agent diagnose` on a server as a user does: on a terminal with a number of columns, without
// flags, with the variables that the shipped DaemonSet sets. The options have to name the programs script and stty.
func (c *Cluster) DiagnoseOnTerminal(ctx context.Context, server string, columns int) (lab.Output, error) {
	command := fmt.Sprintf("stty cols %d; %s diagnose", columns, lab.Path(agentFile))
	return c.Lab.ExecProgram(ctx, lab.Program{
		Host: server,
		Args: []string{"script", "--quiet", "--return", "--command", command, "/dev/null"},
		Env: []string{"TERM=xterm", "LANG=C.UTF-8", "SHELL=/bin/sh", "PNAP_AGENT_NODE_NAME=" + server,
			"KUBECONFIG=" + lab.Path(agentConfig(server))},
	})
}

func (c *Cluster) agentCommand(command, server string) []string {
	return []string{lab.Path(agentFile), command, "--node-name", server, "--kubeconfig", lab.Path(agentConfig(server))}
}

// SuperviseKubeVIP begins to run kube-vip wherever the shipped DaemonSet would.
func (c *Cluster) SuperviseKubeVIP(ctx context.Context) error {
	shipped, err := loadWorkload(filepath.Join(c.root, kubeVIPManifest))
	if err != nil {
		return err
	}
	c.supervisor = &supervisor{
		workload: shipped, programs: c.Lab, program: lab.Path(kubeVIPFile + ".bin"),
		override: map[string]string{
			"vip_interface": PublicInterface, // the line that the manifest asks its user to edit
			"cp_namespace":  kubeSystem,
		},
		running: map[string]int{}, dead: map[string]bool{},
	}
	maps.Copy(c.supervisor.override, c.options.KubeVIPSettings)
	return c.supervisor.start(context.WithoutCancel(ctx), c.Kube)
}

// KubeVIPRunsOn reports whether the supervisor has kube-vip running on a server.
func (c *Cluster) KubeVIPRunsOn(server string) bool { return c.supervisor.runsOn(server) }

// Kill takes a server away at once: all its processes and its port on the switch. The endpoint of its backend is
// marked as not ready, as the endpoint slice controller does when a Node is gone.
func (c *Cluster) Kill(ctx context.Context, server string) error {
	if err := c.TakeAway(ctx, server); err != nil {
		return err
	}
	return c.setEndpointReady(ctx, server, false)
}

// TakeAway is Kill without regard to endpoints.
func (c *Cluster) TakeAway(ctx context.Context, server string) error {
	if c.supervisor != nil {
		c.supervisor.forget(server)
	}
	c.silence(server)
	return c.Lab.KillServer(ctx, server)
}

// BringBack switches on a server that was taken away: its Node is ready again, and its programs and its agent run.
func (c *Cluster) BringBack(ctx context.Context, s Server) error {
	if err := c.Lab.ReviveServer(ctx, s.Name); err != nil {
		return fmt.Errorf("switch on %s: %w", s.Name, err)
	}
	for _, start := range []func(context.Context, Server) error{c.RegisterNode, c.StartPrograms, c.StartAgent} {
		if err := start(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// CopyLogs copies what the servers' programs have written so far into the directory of logs, and returns where.
func (c *Cluster) CopyLogs(ctx context.Context) (string, error) {
	processes, err := c.Lab.Processes(ctx, "")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.options.Dir, "servers")
	for _, p := range processes {
		raw, err := c.Lab.Log(ctx, p.Name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, p.Name+".log"), raw, 0o600); err != nil {
			return "", fmt.Errorf("copy the log of %s: %w", p.Name, err)
		}
	}
	return dir, nil
}
