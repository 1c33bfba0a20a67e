package docs

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// runningCluster is what the guide for existing clusters finds: Nodes whose kubelets ran without
// --cloud-provider=external, one of another provider, and Services that wait, and one of another load balancer.
const runningCluster = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker-1}}
- {apiVersion: v1, kind: Node, metadata: {name: worker-2}}
- {apiVersion: v1, kind: Node, metadata: {name: foreign}, spec: {providerID: "k3s://foreign"}}
- {apiVersion: v1, kind: Service, metadata: {name: first, namespace: default}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: second, namespace: default}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: other, namespace: default}, spec: {type: LoadBalancer, loadBalancerClass: metallb.example/lb, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}
`

// TestAnExistingCluster follows the guide of that name with its own commands, the shipped controller and a
// simulated account, in which worker-1 is a server's host name, and worker-2 is not.
func TestAnExistingCluster(t *testing.T) {
	t.Parallel()
	c := newRunning(t, "docs/guides/existing-clusters.md", func(*pnapsim.AccountSeed, string) {}, runningCluster)
	for _, node := range []string{"worker-1", "worker-2", "foreign"} {
		c.kubectl("taint", "node", node, "node.kubernetes.io/not-ready-") // as they are in a cluster that runs
		c.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p",
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	}
	c.expect("kubectl get nodes", "worker-1 <none> <none>", "foreign k3s://foreign <none>")
	c.expect("kubectl get services", "default first LoadBalancer", "default other LoadBalancer")
	c.controller("--max-ip-blocks=1")
	c.eventually("the Services report that no Node may carry their traffic", func() bool {
		return strings.Contains(c.kubectl("get", "services", "-o",
			"jsonpath={.items[*].status.conditions[*].reason}"), "NoNodeReady")
	})
	if bought := c.bought(); bought != 0 {
		t.Errorf("%d blocks were bought while no Node may carry traffic, want none", bought)
	}
	if conditions := c.kubectl("get", "service", "other", "-o",
		"jsonpath={.status}"); conditions != `{"loadBalancer":{}}` {
		t.Errorf("the Service of another load balancer has the status %s", conditions)
	}
	c.expect("kubectl get nodes", "worker-1 <none> <none>") // who was never tainted is never initialised

	c.run("kubectl taint node worker-1")
	c.eventually("worker-1 is initialised", func() bool { return c.initialised("worker-1", simtest.Server1ID) })
	c.eventually("one of two Services has an address, and the other one reports why not", func() bool {
		addresses := c.kubectl("get", "services", "-o", "jsonpath={.items[*].status.loadBalancer.ingress[*].ip}")
		reasons := c.kubectl("get", "services", "-o", "jsonpath={.items[*].status.conditions[*].reason}")
		return len(strings.Fields(addresses)) == 1 && strings.Contains(reasons, "TooManyBlocks")
	})
	if bought := c.bought(); bought != 1 {
		t.Errorf("%d blocks were bought, want one", bought)
	}
	c.named("worker-1", "worker-2").run("kubectl taint node worker-1")
	c.eventually("an event explains why worker-2 is not", func() bool {
		return strings.Contains(c.named("worker-1", "worker-2").run("kubectl describe node worker-1"), "ServerNotFound")
	})
	c.named("worker-1", "worker-2").named("5fc7a7aee5bd9d4e4a1b2c3d",
		simtest.Server2ID).run("kubectl patch node worker-1")
	c.eventually("worker-2 is initialised", func() bool { return c.initialised("worker-2", simtest.Server2ID) })
	c.expect("kubectl get nodes", "foreign k3s://foreign <none>")
}

// addressOfVersion1 is what v1 bought and published.
const addressOfVersion1 = "203.0.113.18"

// clusterOfVersion1 is a cluster with v1 as its own manifest makes it, and a Service that it serves.
const clusterOfVersion1 = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker-1}, spec: {providerID: "phoenixnap://` + simtest.Server1ID + `"}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {type: LoadBalancer, loadBalancerIP: ` + addressOfVersion1 + `, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: cloud-provider-phoenixnap, namespace: kube-system}, spec: {selector: {matchLabels: {app: v1}}, template: {metadata: {labels: {app: v1}}, spec: {containers: [{name: v1, image: v1}]}}}}
- {apiVersion: v1, kind: Secret, metadata: {name: phoenixnap-cloud-config, namespace: kube-system}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: cloud-controller-manager, namespace: kube-system}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:cloud-controller-manager"}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "system:cloud-controller-manager"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:cloud-controller-manager"}}
`

// TestFromVersion1 follows the guide of the migration: v1's address stays, and nothing is bought.
func TestFromVersion1(t *testing.T) {
	t.Parallel()
	c := newRunning(t, "docs/guides/migrate.md", func(account *pnapsim.AccountSeed, cluster string) {
		account.Blocks = append(account.Blocks, pnapsim.BlockSeed{Owner: simtest.ClientID, Location: "ASH",
			CIDR: "203.0.113.16/29", Network: simtest.NetworkID, Tags: map[string]string{
				contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: cluster,
				contract.TagServiceNamespace: "default", contract.TagServiceName: "web",
			}})
	}, clusterOfVersion1)
	c.run("kubectl -n kube-system scale deployment cloud-provider-phoenixnap")
	c.run("kubectl apply -k deploy/crds")
	c.run("kubectl apply -k deploy/overlays/kubeadm")
	c.controller("--max-ip-blocks=1")
	c.run("kubectl wait service --all-namespaces")
	c.expect("kubectl get services", "default web LoadBalancer")
	c.eventually("the address of v1 is published", func() bool {
		return c.kubectl("get", "service", "web", "-o",
			"jsonpath={.status.loadBalancer.ingress[*].ip}") == addressOfVersion1
	})
	if bought := c.bought(); bought != 0 {
		t.Errorf("%d blocks were bought", bought)
	}
	c.run("kubectl -n kube-system rollout restart")
	c.run("kubectl -n kube-system delete deployment/cloud-provider-phoenixnap")
	c.run("kubectl delete clusterrolebinding/system:cloud-controller-manager")
	if left := c.kubectl("-n", "kube-system", "get", "deployments,secrets,serviceaccounts", "-o",
		"name"); strings.Contains(left, "cloud-provider-phoenixnap") ||
		strings.Contains(left, "phoenixnap-cloud-config") ||
		!strings.Contains(left, "deployment.apps/phoenixnap-cloud-controller-manager") {
		t.Errorf("left in kube-system:\n%s", left)
	}
}

// running is a cluster that was there before the controller.
type running struct {
	*testing.T
	*bench
	// page is the guide that is followed.
	page   string
	secret string
	sim    *pnapsim.Sim
	// names are those of the page, each with what is put in its place.
	names []string
}

// newRunning is such a cluster with its account, in which worker-1 is a server; edit receives the UID of kube-system.
func newRunning(t *testing.T, page string, edit func(account *pnapsim.AccountSeed, cluster string),
	objects string) running {
	t.Helper()
	plane := controlplane.ForTest(t)
	c := running{T: t, page: page, bench: &bench{programs: map[string]string{"kubectl": kubectlOf(t)},
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}}
	must(t, controlplane.WriteKubeconfig(c.kubeconfig, plane.Config(), ""))
	must(t, plane.Apply(t.Context(), controlplane.Manifest{Name: "a running cluster", Data: []byte(objects)}))
	seed := simtest.Seed()
	seed.Accounts[0].Servers[0].Hostname = "worker-1"
	seed.Accounts[0].Servers[1].Hostname = "rack-7"
	edit(&seed.Accounts[0], c.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
	var url string
	c.sim, url = simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, seed)
	c.secret = filepath.Join(t.TempDir(), "cloud-sa.json")
	content := fmt.Sprintf(`{"clientID": %q, "clientSecret": %q, "base-url": %q, "location": "ASH", "loadbalancer": "kube-vip://%s"}`, simtest.ClientID, simtest.ClientSecret, url, simtest.NetworkID)
	must(t, os.WriteFile(c.secret, []byte(content), 0o600))
	return c
}

// bought is how many blocks the controller has bought.
func (c running) bought() int { return c.sim.Counters()["POST /ips/v1/ip-blocks"][http.StatusCreated] }

// controller starts the shipped program until the test ends.
func (c running) controller(args ...string) {
	c.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(c.Context(), program(c.T, "./controller"), append([]string{
		"--cloud-provider=phoenixnap", "--cloud-config=" + c.secret, "--kubeconfig=" + c.kubeconfig,
		"--leader-elect=false", "--authentication-skip-lookup=true", "--bind-address=127.0.0.1", "--secure-port=0",
	}, args...)...)
	cmd.Stdout = &out
	cmd.Stderr = &out
	process, err := subprocess.Start(cmd)
	must(c.T, err)
	c.Cleanup(func() {
		err := process.Stop(20 * time.Second)
		if c.Failed() || err != nil {
			c.Errorf("the controller ends with %v:\n%s", err, out.String())
		}
	})
}

// kubectl is what a command prints that is not the page's.
func (c running) kubectl(args ...string) string {
	c.Helper()
	out, err := c.bench.run(c.Context(), c.T, time.Minute, nil, args...)
	if err != nil {
		c.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// named is the cluster with one name more in the place of the page's.
func (c running) named(page, ours string) running {
	c.names = append(slices.Clone(c.names), page, ours)
	return c
}

// run runs the first command of the page that begins so, and returns what it prints.
func (c running) run(beginning string) string {
	c.Helper()
	for _, b := range blocks(c.T) {
		if b.page != c.page || b.language != "sh" {
			continue
		}
		commands, err := shellCommands(b.text)
		must(c.T, err)
		for _, words := range commands {
			if strings.HasPrefix(strings.Join(words, " "), beginning) {
				var args []string
				for _, word := range words[1:] {
					args = append(args, strings.NewReplacer(c.names...).Replace(word))
				}
				return c.kubectl(args...)
			}
		}
	}
	c.Fatalf("the page has no command %s", beginning)
	return ""
}

// expect runs a command of the page and wants rows in what it prints that begin with these words.
func (c running) expect(beginning string, rows ...string) {
	c.Helper()
	out := c.run(beginning)
	for _, row := range rows {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.HasPrefix(strings.Join(strings.Fields(line), " "), row)
		}
		if !found {
			c.Errorf("%s prints no row %q:\n%s", beginning, row, out)
		}
	}
}

// initialised reports whether a Node has its server, its region and no taint.
func (c running) initialised(node, server string) bool {
	c.Helper()
	seen := c.kubectl("get", "node", node, "-o",
		`jsonpath={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/region} {.spec.taints}`)
	return strings.TrimSpace(seen) == "phoenixnap://"+server+" ASH"
}

// eventually waits for what the controller does.
func (c running) eventually(what string, holds func() bool) {
	c.Helper()
	tick := time.NewTicker(2 * time.Second) // each look starts kubectl
	defer tick.Stop()
	for late := time.After(4 * time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			c.Fatalf("%s: not within four minutes", what)
		}
	}
}

// TestOnlyTheNodes follows the guide beside another load balancer, with the rights that its overlay has: Nodes are
// initialised, the policies of the overlay are about the controller only, and no Service changes. While phoenixNAP
// refuses the credentials, an event of each waiting Node says so.
func TestOnlyTheNodes(t *testing.T) {
	t.Parallel()
	c := newRunning(t, "docs/guides/other-load-balancers.md", func(*pnapsim.AccountSeed, string) {}, runningCluster)
	secret, err := os.ReadFile(c.secret)
	must(t, err)
	content, _, found := strings.Cut(string(secret), `, "loadbalancer"`)
	if !found {
		t.Fatalf("no load balancer in %s", secret)
	}
	must(t, os.WriteFile(c.secret, []byte(content+"}"), 0o600))
	c.run("kubectl apply -k deploy/overlays/kubeadm-nodes")
	c.kubectl("patch", "service", "first", "--subresource=status", "--type=merge", "-p",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`)
	before := c.kubectl("get", "services", "-o", "jsonpath={.items[*]['metadata.resourceVersion','metadata.name']}")
	// Those that confine the controller itself, and none for users.
	const confining = "phoenixnap-controller phoenixnap-controller-ipblocks phoenixnap-controller-publicnetworks " +
		"phoenixnap-controller-services"
	if policies := c.kubectl("get", "validatingadmissionpolicies", "-o",
		"jsonpath={.items[*].metadata.name}"); policies != confining {
		t.Errorf("the overlay has the policies\n%s", policies)
	}
	must(t, c.sim.Arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultStatus,
		Status: http.StatusUnauthorized, Times: -1}))
	c.kubectl("taint", "node", "worker-1", "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule")
	c.asItself().controller()
	c.eventually("the refused credentials are an event of the Node", func() bool {
		return c.events("ServerLookupFailed") != ""
	})
	c.sim.Disarm()
	c.eventually("worker-1 is initialised", func() bool {
		seen := c.kubectl("get", "node", "worker-1", "-o", "jsonpath={.spec.providerID} {.spec.taints[*].key}")
		return strings.HasPrefix(seen, "phoenixnap://"+simtest.Server1ID) && !strings.Contains(seen, "uninitialized")
	})
	after := c.kubectl("get", "services", "-o", "jsonpath={.items[*]['metadata.resourceVersion','metadata.name']}")
	if after != before || c.bought() != 0 {
		t.Errorf("Services were\n%s\nand are\n%s; %d blocks were bought", before, after, c.bought())
	}
	c.expect("kubectl get services --all-namespaces", "default first <none> 192.0.2.1", "default second <none> <none>",
		"default other metallb.example/lb <none>")
}

// TestRotatedCredentials: the check of the guide shows that phoenixNAP refuses the credentials, and that the controller
// reads the account with others in the same file, without a restart.
func TestRotatedCredentials(t *testing.T) {
	t.Parallel()
	c := newRunning(t, "docs/guides/operate.md", func(*pnapsim.AccountSeed, string) {}, runningCluster)
	valid, err := os.ReadFile(c.secret)
	must(t, err)
	c.controller("--max-ip-blocks=1")
	read := func() string {
		return c.kubectl("get", "publicnetworks", "default", "--ignore-not-found", "-o",
			"jsonpath={.status.accountReadTime}")
	}
	c.eventually("the account is read", func() bool { return read() != "" })
	must(t, os.WriteFile(c.secret, bytes.Replace(valid, []byte(simtest.ClientSecret), []byte("revoked"), 1), 0o600))
	c.eventually("the refusal is an event", func() bool { return c.events(contract.AccountUnreadable) != "" })
	refused := read()
	must(t, os.WriteFile(c.secret, valid, 0o600))
	c.eventually("the account is read again", func() bool { return read() != refused })
}

// events returns the names of the events with the reason about objects without a namespace.
func (c running) events(reason string) string {
	c.Helper()
	return c.kubectl("-n", "default", "get", "events", "--field-selector=reason="+reason, "-o", "name")
}

// asItself is the cluster as the ServiceAccount of the controller reaches it.
func (c running) asItself() running {
	c.Helper()
	const user = "phoenixnap-cloud-controller-manager"
	token := strings.TrimSpace(c.kubectl("-n", "kube-system", "create", "token", user))
	text, err := os.ReadFile(c.kubeconfig)
	must(c.T, err)
	c.bench = &bench{programs: c.programs, kubeconfig: filepath.Join(c.TempDir(), "kubeconfig")}
	must(c.T, os.WriteFile(c.kubeconfig, text, 0o600))
	c.kubectl("config", "set-credentials", user, "--token="+token)
	c.kubectl("config", "set-context", "--current", "--user="+user)
	return c
}
