//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TwoNetworks is the value of Options.Networks for the story of a cluster in two locations, each with a public network.
const TwoNetworks = "2"

const (
	// west is the PublicNetwork of the other location.
	west = "west"
	// refusedService is a Service that names a public network which has no object.
	refusedService = "web-east"
	// plugin is the package of kubectl pnap.
	plugin = "./controller/kubectl-pnap"
	// calm is how long a request may wait for its answer where none may be lost: an emulated machine has slow moments.
	calm = 3 * time.Second
	// outage is how long a location fails: long enough that agents elsewhere would have noticed, if it concerned them.
	outage = 20 * time.Second
)

// checkNetworks refuses what the story of two networks cannot be combined with.
func (o Options) checkNetworks() error {
	switch {
	case !slices.Contains([]string{"", "1", TwoNetworks}, o.Networks):
		return fmt.Errorf("NETWORKS is %q: set it to 1 or 2, the number of public networks of the demo", o.Networks)
	case o.Networks != TwoNetworks:
		return nil
	case o.Auto:
		return errors.New("NETWORKS=2 begins with servers that a user has configured, AUTO=1 with others: leave one " +
			"of them out")
	case o.CNI != "":
		return fmt.Errorf("NETWORKS=2 connects the pods with routes that the lab makes itself, CNI=%s does not: leave "+
			"one of them out", o.CNI)
	case o.KubeVIP != "":
		return fmt.Errorf("NETWORKS=2 has the agents announce the addresses, and --kube-vip is %s: leave one of "+
			"them out", o.KubeVIP)
	}
	return nil
}

// location is one of the two, with a Service whose address and endpoints are there.
type location struct {
	name, network, gateway string
	service                string
	annotations            map[string]string
	servers                []cluster.Server

	address netip.Addr // of the Service, once published
	probe   int        // the client's requests to it, once they have begun
}

// locations is a story in progress about two of them.
type locations struct {
	*story
	home, away *location
	died       time.Time // when the servers of the other location were taken away
}

func newLocations(s *story) *locations {
	elsewhere := slices.IndexFunc(s.Servers, func(c cluster.Server) bool { return c.Location == cluster.AwayLocation })
	return &locations{
		story: s,
		home: &location{name: cluster.Location, network: v1beta1.DefaultNetwork, gateway: lab.Gateway,
			service: cluster.Service, servers: s.Servers[:elsewhere]},
		away: &location{name: cluster.AwayLocation, network: west, gateway: wire.GatewayOf(1),
			service: "web-" + west, servers: s.Servers[elsewhere:],
			annotations: map[string]string{contract.ServiceIPLocation: cluster.AwayLocation}},
	}
}

func (l *locations) both() []*location { return []*location{l.home, l.away} }

// steps are the acts in order. As of every story, one that is kept running leaves Services and account in place.
func (l *locations) steps(keep bool) []act {
	acts := []act{
		{"A simulated phoenixNAP account: two locations, each with a public network", l.account},
		{"A real Kubernetes control plane: etcd and kube-apiserver, RBAC on", l.controlPlane},
		{"Two servers in one location, one in the other; each location has a gateway", l.servers},
		{"The servers join as Nodes, tainted until a cloud provider knows them", l.join},
		{"The controller initialises the Nodes; their region is their location", l.initialise},
		{"A user adds the public network of the other location: PublicNetwork west", l.addNetwork},
		{"The agents find the VLANs in order; each Node lists the network of its location", l.agents},
		{"Two Services get addresses, the second in the location that it asks for", l.publish},
		{"A client beyond the gateways gets an answer in either location", l.answered},
		{"A Service that names a network which does not exist is refused", l.refused},
		{"kubectl pnap shows both networks, and what is wrong", l.overview},
		{"The other location fails: its only server dies. The first one misses no request", l.fail},
		{"The server comes back, and its address answers again", l.comeBack},
	}
	acts = append(acts, l.look("pnapctl, phoenixNAP's own program, shows the blocks and networks of the account")...)
	if keep {
		return acts
	}
	acts = append(acts, act{"The Services are deleted; their blocks are released", l.deleteServices},
		act{"PublicNetwork west is deleted; the account holds no block any more", l.deleteNetwork})
	return append(acts, l.look("pnapctl shows what is left of them")...)
}

// controlPlane also applies the policies that users install with the definitions, because one of them keeps a network
// with blocks from being deleted by mistake.
func (l *locations) controlPlane(ctx context.Context) error {
	if err := l.story.controlPlane(ctx); err != nil {
		return err
	}
	root, err := tools.ModuleRoot()
	if err != nil {
		return fmt.Errorf("find the manifests: %w", err)
	}
	return l.ControlPlane.ApplyFiles(ctx, filepath.Join(root, "deploy", "crds", "policy.yaml"))
}

// addNetwork applies the manifest of the guide.
func (l *locations) addNetwork(ctx context.Context) error {
	manifest := fmt.Sprintf(`apiVersion: %s
kind: PublicNetwork
metadata:
  name: %s
spec:
  id: %s
  announcer: %s
`, v1beta1.GroupVersion, west, cluster.AwayNetworkID, v1beta1.AnnouncerAgent)
	file := filepath.Join(l.options.Dir, west+".yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return fmt.Errorf("manifest of the network: %w", err)
	}
	l.say("%s.yaml:", west)
	l.quote(manifest)
	l.say("kubectl apply -f %s.yaml", west)
	if err := l.kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	if err := l.typed(ctx, "wait", "pubnet", west, "--for=condition=Ready", "--timeout=1m"); err != nil {
		return err
	}
	return l.typed(ctx, "get", "pubnet")
}

// typed shows a command of kubectl, runs it, and shows what it prints.
func (l *locations) typed(ctx context.Context, args ...string) error {
	l.say("kubectl %s", strings.Join(args, " "))
	return l.kubectl(ctx, args...)
}

// wrapped shows a long sentence that a program printed.
func (l *locations) wrapped(sentence string) {
	l.quote(strings.Join(text.Wrap(strings.TrimSpace(sentence), width), "\n"))
}

func (l *locations) agents(ctx context.Context) error {
	if err := l.StartAgents(ctx); err != nil {
		return err
	}
	l.say("their heartbeats are a second apart here, ten times as long as on servers that do not share processors")
	for _, at := range l.both() {
		for _, server := range at.servers {
			if _, err := l.awaitNodes(ctx, patience, server.Name+" ready for network "+at.network, vlanReady,
				server.Name); err != nil {
				return err
			}
			if err := l.lists(ctx, server, at); err != nil {
				return err
			}
		}
	}
	return l.showNodes(ctx)
}

// lists expects of a Node that it lists the network of its location, and no other one.
func (l *locations) lists(ctx context.Context, server cluster.Server, at *location) error {
	_, err := l.awaitNodes(ctx, patience, server.Name+" lists network "+at.network,
		func(n *corev1.Node) (bool, string) {
			list, _, err := contract.ParsePublicNetworks(n.Annotations)
			return err == nil && len(list) == 1 && list[0].Name == at.network && list[0].Member,
				fmt.Sprintf("%+v, %v", list, err)
		}, server.Name)
	if err == nil {
		l.say("%s in %s lists network %s, and no other one", server.Name, at.name, at.network)
	}
	return err
}

func (l *locations) publish(ctx context.Context) error {
	l.created = time.Now()
	for _, at := range l.both() {
		if err := l.CreateServiceOn(ctx, at.service, at.servers, at.annotations); err != nil {
			return err
		}
	}
	l.say("Service %s has no annotation; %s has %s: %s. The pods of each are in one location", l.home.service,
		l.away.service, contract.ServiceIPLocation, l.away.name)
	var last time.Time
	for _, at := range l.both() {
		var err error
		if at.address, last, err = l.awaitAddress(ctx, at.service); err != nil {
			return err
		}
	}
	l.seconds("demo_networks_addresses_published_after", last.Sub(l.created))
	if err := l.typed(ctx, "get", "services", l.home.service, l.away.service); err != nil {
		return err
	}
	return l.blocksAre(ctx)
}

// blocksAre shows the objects of the blocks once they are ready, and expects each in the network of its location.
func (l *locations) blocksAre(ctx context.Context) error {
	networks := map[string]string{}
	for _, at := range l.both() {
		service, err := l.service(ctx, at.service)
		if err != nil {
			return err
		}
		name := v1beta1.ServicePrefix + string(service.UID)
		if _, err := l.printed(ctx, "wait", "ipb", name, "--for=condition=Ready", "--timeout=1m"); err != nil {
			return err
		}
		if networks[at.service], err = l.printed(ctx, "get", "ipb", name, "-o",
			"jsonpath={.spec.attachment.name}"); err != nil {
			return err
		}
	}
	if err := l.typed(ctx, "get", "ipb"); err != nil {
		return err
	}
	for _, at := range l.both() {
		if got := networks[at.service]; got != at.network {
			return fmt.Errorf("the block of Service %s is in network %q, not in %s", at.service, got, at.network)
		}
	}
	return nil
}
