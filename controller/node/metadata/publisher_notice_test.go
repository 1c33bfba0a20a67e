package metadata

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

type oneServer struct{}

func (oneServer) Recent(context.Context, time.Duration) (instances.List, error) {
	return instances.List{ByID: map[string]pnap.Server{simtest.Server1ID: {ID: simtest.Server1ID,
		PublicNetworks: []pnap.Membership{{Network: simtest.NetworkID, Status: pnap.MembershipAssigned,
			IPs: []netip.Addr{netip.MustParseAddr("198.51.100.10")}}}}}}, nil
}

// growing is a network that has a second block from a given time on.
type growing struct{ since time.Time }

func (g growing) now() network.Network {
	public := network.Network{
		ID: simtest.NetworkID, VLAN: 20, Status: network.StatusReady,
		Blocks: []network.ListedBlock{{ID: "a", CIDR: netip.MustParsePrefix("203.0.113.0/28")}},
	}
	if !time.Now().Before(g.since) {
		public.Blocks = append(public.Blocks, network.ListedBlock{ID: "b",
			CIDR: netip.MustParsePrefix("198.51.100.8/29")})
	}
	return public
}

func (g growing) Network(context.Context, string, time.Time) (network.Network, error) {
	return g.now(), nil
}

// A network that another controller has read is published at once.
func TestANoticedChangeIsPublishedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(serverNode("node-1", simtest.Server1ID))
		public := growing{since: time.Now().Add(DefaultNetworkWindow / 3)}
		factory := informers.NewSharedInformerFactory(client, 0)
		changes := NewNetworkChanges()
		publisher, err := NewNetworkPublisher(NetworkConfig{
			Client: client, Nodes: factory.Core().V1().Nodes(), Servers: oneServer{}, Networks: public,
			Changes: changes,
			Events:  record.NewFakeRecorder(100), Published: defaultOnly(contract.AnnouncerKubeVIP),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(testlog.Context(t))
		factory.StartWithContext(ctx)
		ended := make(chan error, 1)
		go func() { ended <- publisher.Run(ctx) }()
		changes.Notice(public.now())
		time.Sleep(time.Until(public.since))
		changes.Notice(network.Network{ID: "another", Status: network.StatusReady})
		changes.Notice(public.now())
		time.Sleep(debounce + time.Millisecond)
		synctest.Wait()
		node, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		published := node.Annotations[contract.NodePublicNetworks]
		if !strings.Contains(published, `"ips":["198.51.100.10/29"]`) {
			t.Errorf("published is %s, %v after the block was noticed", published, debounce)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
}
