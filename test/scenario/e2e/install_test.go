//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// limit is what a step may take on a busy machine under emulation; on a quiet one the longest takes a minute.
const limit = 10 * time.Minute

func prefix(address [4]byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4(address), bits)
}

// kind is one kind of cluster.
type kind struct {
	// announcer announces the addresses, overlay is what users install for it.
	announcer, overlay string
	// register changes the configuration for kubeadm of a server; nil for nothing beyond the guide.
	register func(*installer.Machine)
	// account changes what the account holds; nil for nothing.
	account func(*pnapsim.AccountSeed)
	// addresses are the InternalIPs of the Nodes; nil for those on the private network.
	addresses map[string]string
	// servers is how many there are; 0 means 2. The one called later is not in the account before it is added.
	servers int
	later   string
	// auto leaves it to controller and agents to join the servers to the public network, see cluster.Options.
	auto bool
	// replicas of the controller, if there are fewer nodes of the control plane than the overlay is for; 0 for those of
	// the overlay.
	replicas int
	// judged adds what Kubernetes' own tests need.
	judged bool
}

// machine is what the configuration for kubeadm of a server is made of.
func (s *site) machine(server cluster.Server) installer.Machine {
	m := installer.Machine{Name: server.Name, APIServer: s.APIServer()}
	if s.register != nil {
		s.register(&m)
	}
	return m
}

// TestInstall is the life of an installation: the guides install, upgrade and uninstall, step by step, with a client
// beyond the gateway that asks all the time. Then Helm does the same once more, without a Service. All nodes are of the
// control plane.
func TestInstall(t *testing.T) {
	for _, announcer := range []string{contract.AnnouncerKubeVIP, contract.AnnouncerAgent} {
		k := kind{announcer: announcer, overlay: "deploy/overlays/kubeadm"}
		if announcer == contract.AnnouncerAgent {
			k.overlay += "-agent"
		}
		t.Run(announcer, func(t *testing.T) { newSite(t, k).live() })
	}
}

// Taints that others remove: Cluster API when the Node has its provider ID, Cilium when its agent runs.
const (
	clusterAPITaint = "node.cluster.x-k8s.io/uninitialized"
	ciliumTaint     = "node.cilium.io/agent-not-ready"
)

// TestWorker installs with one node of the control plane, whose kubelet has the address of an overlay network, and a
// worker with the taints of Cluster API and Cilium, whose server has no private address in the account.
func TestWorker(t *testing.T) {
	const other = "100.64.7.11"
	s := newSite(t, kind{
		announcer: contract.AnnouncerKubeVIP,
		overlay:   "deploy/overlays/kubeadm-single",
		register: func(m *installer.Machine) {
			if m.Name == "srv-a" {
				m.NodeIP = netip.MustParseAddr(other)
				return
			}
			m.Joins = true
			m.Taints = []corev1.Taint{
				{Key: clusterAPITaint, Effect: corev1.TaintEffectNoSchedule},
				{Key: ciliumTaint, Value: "true", Effect: corev1.TaintEffectNoExecute},
			}
		},
		account: func(a *pnapsim.AccountSeed) {
			server := &a.Servers[1]
			server.PrivateIPs = nil
			server.NetworkType = "PUBLIC_ONLY"
		},
		addresses: map[string]string{"srv-a": other},
	})
	s.registered()
	s.tainted()
	s.install()
	s.serve()
	s.undisturbed()
}

func (s *site) live() {
	s.Helper()
	s.registered()
	s.tainted()
	s.install()
	address, probe := s.serve()
	s.allowed()
	s.diagnose()
	s.upgrade(address, probe)
	s.allowed()
	s.uninstall(probe)
	s.chart()
	s.undisturbed()
}

// tainted expects what the guide shows before anything is installed.
func (s *site) tainted() {
	s.Helper()
	for _, n := range s.nodes() {
		known := slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
			return a.Type == corev1.NodeInternalIP && a.Address != s.addresses[n.Name]
		})
		if !isTainted(n) || n.Spec.ProviderID != "" || known {
			s.Errorf("Node %s before the installation: taints %v, provider ID %q, addresses %v", n.Name, n.Spec.Taints,
				n.Spec.ProviderID, n.Status.Addresses)
		}
	}
}

func isTainted(n corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

func (s *site) nodes() []corev1.Node {
	s.Helper()
	list, err := s.Kube.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	check(s.T, err)
	if len(list.Items) != len(s.on) {
		s.Fatalf("%d Nodes, want %d", len(list.Items), len(s.on))
	}
	return list.Items
}

// install follows docs/guides/install.md from its step 3 on.
func (s *site) install() {
	s.Helper()
	began := time.Now()
	s.run("kubectl apply -f " + s.secret())
	if s.images.release == "" {
		s.run("kubectl apply -k deploy/crds")
		s.bring()
		s.run("kubectl apply -k " + s.overlay)
	} else {
		s.run("kubectl apply -f " + filepath.Join(s.images.release, "manifests", "crds.yaml"))
		s.bring()
		s.run("kubectl apply -f " + filepath.Join(s.images.release, "manifests", filepath.Base(s.overlay),
			"deployment.yaml"))
	}
	if s.replicas > 0 {
		s.run(fmt.Sprintf("kubectl -n kube-system scale deployment/phoenixnap-cloud-controller-manager --replicas=%d",
			s.replicas))
	}
	s.figure("nodes_initialised_after", s.initialised().Sub(began).Seconds(), "s")
	s.untaint()
	s.rolledOut()
	s.checkImages(shipped.tagAndDigest)
	s.checkServers()
	s.figure("nodes_ready_after", s.ready().Sub(began).Seconds(), "s")
	if s.announcer == contract.AnnouncerKubeVIP {
		s.run("kubectl apply -f deploy/kube-vip/kube-vip.yaml")
		s.run("kubectl -n kube-system rollout status daemonset/kube-vip --timeout=10m")
	}
	s.Log(s.run("kubectl get nodes -L topology.kubernetes.io/region," + contract.NodeVLANReady))
}

// initialised waits until the controller has initialised all Nodes.
func (s *site) initialised() time.Time {
	s.Helper()
	return s.eventually(limit, "Nodes initialised", func() (bool, string) {
		for _, n := range s.nodes() {
			if isTainted(n) || n.Spec.ProviderID == "" {
				return false, fmt.Sprintf("%s: provider ID %q, taints %v; pods:\n%s", n.Name, n.Spec.ProviderID,
					n.Spec.Taints, s.pods())
			}
		}
		return true, ""
	})
}

// ready waits until the agents of all Nodes say so. The label of those that may carry traffic comes with it, see
// include.
func (s *site) ready() time.Time {
	s.Helper()
	return s.eventually(limit, "Nodes ready for the public network", func() (bool, string) {
		for _, n := range s.nodes() {
			c := contract.FindNodeCondition(&n, contract.ConditionVLANReady)
			if c == nil || c.Status != corev1.ConditionTrue {
				return false, fmt.Sprintf("%s: %+v", n.Name, c)
			}
		}
		return true, ""
	})
}

// untaint removes the taints that others remove once the controller has initialised the Nodes.
func (s *site) untaint() {
	s.Helper()
	for _, n := range s.nodes() {
		for _, t := range n.Spec.Taints {
			if t.Key == clusterAPITaint || t.Key == ciliumTaint {
				s.run("kubectl taint node " + n.Name + " " + t.Key + "-")
			}
		}
	}
}

// rolledOut waits as the guides say.
func (s *site) rolledOut() {
	s.Helper()
	s.run("kubectl -n kube-system rollout status deployment/phoenixnap-cloud-controller-manager --timeout=10m")
	s.run("kubectl -n kube-system rollout status daemonset/phoenixnap-agent --timeout=10m")
}

// secret fills in the template as a user does.
func (s *site) secret() string {
	s.Helper()
	raw, err := os.ReadFile(filepath.Join(s.root, "deploy/template/secret.yaml"))
	check(s.T, err)
	var secret corev1.Secret
	check(s.T, yaml.UnmarshalStrict(raw, &secret))
	config, err := s.CloudConfig()
	check(s.T, err)
	secret.StringData["cloud-sa.json"] = string(config)
	filled, err := yaml.Marshal(secret)
	check(s.T, err)
	path := filepath.Join(s.TempDir(), "secret.yaml")
	check(s.T, os.WriteFile(path, filled, 0o600))
	return path
}

// checkServers expects every Node to be the server of its name.
func (s *site) checkServers() {
	s.Helper()
	for _, n := range s.nodes() {
		i := slices.IndexFunc(s.Servers, func(server cluster.Server) bool { return server.Name == n.Name })
		if want := "phoenixnap://" + s.Servers[i].ID; n.Spec.ProviderID != want ||
			n.Labels[corev1.LabelTopologyRegion] != cluster.Location {
			s.Errorf("Node %s has provider ID %q and region %q, want %s and %s", n.Name, n.Spec.ProviderID,
				n.Labels[corev1.LabelTopologyRegion], want, cluster.Location)
		}
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != cluster.Location {
			s.Errorf("Node %s has zone %q, want %s", n.Name, zone, cluster.Location)
		}
		address := s.Servers[i].Private.Addr().String()
		if s.addresses != nil {
			address = s.addresses[n.Name]
		}
		if address != "" && !slices.Contains(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}) {
			s.Errorf("Node %s has the addresses %v, without %s", n.Name, n.Status.Addresses, address)
		}
	}
}

// patience is how long the client waits for an answer. The machine that emulates all servers may stand still for a
// second or two while containers start; an address that is lost is lost for longer and is seen on the wire, too.
const patience = 5 * time.Second

// web is a workload that anybody might have, webService its Service. Its pods answer until every kube-proxy knows that
// they end.
const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:
        - name: web
          image: ` + webImage + `
          args: [--listen=:8080, --name=web]
          ports: [{containerPort: 8080}]
          lifecycle: {preStop: {sleep: {seconds: 5}}}
`

const webService = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// serve publishes a Service of running pods, and has the client ask it every tenth of a second from then on.
func (s *site) serve() (netip.Addr, int) {
	s.Helper()
	s.apply(web)
	s.run("kubectl rollout status deployment/web --timeout=10m")
	s.apply(webService)
	s.include()
	began := time.Now()
	var address netip.Addr
	published := s.eventually(limit, "address published", func() (bool, string) {
		service, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(s.Context(), "web", metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return false, fmt.Sprint(err, s.describe())
		}
		address, err = netip.ParseAddr(service.Status.LoadBalancer.Ingress[0].IP)
		return err == nil, fmt.Sprint(err)
	})
	s.figure("service_published_after", published.Sub(began).Seconds(), "s")
	probe, err := s.Lab.StartProbe(s.Context(), lab.Probe{URL: "http://" + address.String() + "/",
		Interval: 100 * time.Millisecond, Timeout: patience})
	check(s.T, err)
	answered := s.eventually(limit, "the client beyond the gateway got an answer", func() (bool, string) {
		attempts, err := s.Lab.ProbeResults(s.Context(), probe)
		check(s.T, err)
		if len(attempts) == 0 {
			return false, "no request yet"
		}
		last := attempts[len(attempts)-1]
		return slices.ContainsFunc(attempts, func(a lab.Attempt) bool { return a.OK }), last.Error + "\n" + s.pods()
	})
	s.figure("service_answered_after", answered.Sub(began).Seconds(), "s")
	return address, probe
}

func (s *site) apply(manifest string) {
	s.Helper()
	path := filepath.Join(s.TempDir(), "manifest.yaml")
	check(s.T, os.WriteFile(path, []byte(manifest), 0o600))
	s.run("kubectl apply -f " + path)
}

// include does what the Service says where all Nodes are of the control plane: kubeadm keeps the traffic of load
// balancers away from them.
func (s *site) include() {
	s.Helper()
	for _, server := range s.on {
		if s.machine(server).Joins {
			return
		}
	}
	const advice = corev1.LabelNodeExcludeBalancers
	s.eventually(limit, "the Service waits for a Node that may carry its traffic", func() (bool, string) {
		said := s.describe()
		return strings.Contains(said, advice), said
	})
	state, err := s.Sim.State(s.Context())
	check(s.T, err)
	if len(state.Blocks) != 1 {
		s.Errorf("before a Node may carry traffic the account holds %+v", state.Blocks)
	}
	s.run("kubectl label node --all " + advice + "-")
}

func (s *site) describe() string {
	out, _ := s.try("kubectl describe service web")
	return out
}

func (s *site) pods() string {
	out, _ := s.try("kubectl get pods -A -o wide")
	return out
}
