//go:build linux

package failover

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/examiner"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
)

// networkID is that of the public network.
const networkID = "60473c2509268bc77fd06d29"

// NodeCommand is the argument with which the program is the announcer of one node.
const NodeCommand = "node"

// RunNode announces the address of the Service on one node until ctx ends: the agent's announcer as it is shipped,
// without the agent's checks of the VLAN interface, which a veth is not.
func RunNode(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(NodeCommand, flag.ContinueOnError)
	name := flags.String("name", "", "name of the Node")
	source := flags.String("source", "", "its address on the public network")
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	own, err := netip.ParseAddr(*source)
	if err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(store.ClientConfig(config))
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(*name)) // never fails
	public := func() string { return publicLink }
	turn := standby.New(turnAddress)
	keys := heartbeat.NewKeys()
	var h *speaker.Speaker
	h = speaker.New(speaker.Config{
		Node:        *name,
		NewElection: func(c election.Config) speaker.Election { return election.New(c) },
		NewStore: func(network string) speaker.Store {
			return store.New(client.CoreV1().ConfigMaps(metav1.NamespaceSystem), network)
		},
		Transport: heartbeat.Config{Interface: public, Source: func() netip.Addr { return own },
			Keys: keys},
		WatchKeys: store.Key{Secrets: client.CoreV1().Secrets(metav1.NamespaceSystem), Set: keys.Set}.Watch,
		Responder: responder.New(responder.Config{Interface: public, Seed: seed.Sum64(),
			Watch: func(ctx context.Context, changed func()) error {
				return netstate.Watch(ctx, func() {
					changed()
					h.Changed()
				})
			}}),
		Network: func() string { return networkID },
		Cluster: func(context.Context) (string, error) { return "bench", nil },
		Facts: func() election.Facts {
			f := facts()
			f.Standby = turn.Waits()
			return f
		},
		Waiting: turn.Post.Waiting, Release: turn.Post.Release,
		List: func(context.Context) (map[netip.Addr]bool, error) {
			return map[netip.Addr]bool{virtual: true}, nil
		},
		AskGateway: func(ctx context.Context) bool { return askGateway(ctx, own) },
		Examine:    (&examiner.Examiner{Client: client, Claimed: claimed}).Examine,
		Clock:      responder.Now,
	})
	turn.Warm = func() bool { return h.State().View != nil }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveTurn(ctx, turn) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-turn.Begun():
			h.Changed()
		}
		return nil
	})
	group.Go(func() error { return h.Run(ctx) })
	return group.Wait()
}

// turnAddress is where only one announcer of a node can listen.
const turnAddress = "127.0.0.1:10298"

// serveTurn waits for the turn of this announcer, and lets a later one wait for its turn, as the agent does.
func serveTurn(ctx context.Context, turn *standby.Turn) error {
	listener, err := turn.Listen(ctx)
	if err != nil || listener == nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+standby.Path, &turn.Post)
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// facts are those of a node that can announce the one address.
func facts() election.Facts {
	link, err := packet.Look(publicLink)
	return election.Facts{
		Link: err == nil && link.Up, Candidate: true, HasGateway: true, Known: true,
		Wanted: map[netip.Addr]bool{virtual: true},
	}
}

func claimed(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]bool, error) {
	return arp.NewProber().Claimed(ctx, publicLink, addresses)
}

func askGateway(ctx context.Context, own netip.Addr) bool {
	prober := arp.NewProber()
	prober.Rounds = 2
	prober.Interval = 150 * time.Millisecond
	answers, err := prober.Ask(ctx, publicLink, []arp.Question{{Target: gateway, Source: own}})
	return err == nil && answers[0].Replied
}
