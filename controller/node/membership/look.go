package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
)

// observed is a picture and the data behind it.
type observed struct {
	picture
	nodes []*corev1.Node
}

// patience is how old the list of servers may be: other controllers read it often enough unless a change is awaited.
func (m *Manager) patience() time.Duration {
	for _, at := range m.touched {
		if m.config.Now().Sub(at) < 2*time.Minute {
			return instances.DefaultWindow
		}
	}
	return instances.Unhurried
}

// look reads the picture; the network is not older than after.
func (m *Manager) look(ctx context.Context, list instances.List, after time.Time) (observed, error) {
	if len(list.ByID) == 0 {
		return observed{},
			errors.New("the list of servers is empty: check that the credentials belong to the account that owns the " +
				"servers")
	}
	network, err := m.config.Account.Network(ctx, m.config.NetworkID, after)
	if err != nil {
		return observed{}, err
	}
	recorded, err := m.store.load(ctx)
	if err != nil {
		return observed{}, err
	}
	nodes, err := m.lister.List(labels.Everything())
	if err != nil {
		return observed{}, fmt.Errorf("list Nodes: %w", err)
	}
	now := m.config.Now()
	return observed{nodes: nodes, picture: picture{
		now: now, network: network, servers: list.ByID, memberRecord: recorded,
		wanted: wanted(nodes, m.config.Selector),
		unsettled: func(id string) bool {
			return !list.AskedAt.After(m.touched[id]) || now.Before(m.rests[id])
		},
		unwantedFor: func(id string) time.Duration {
			since, unwanted := m.unwanted[id]
			if !unwanted {
				return 0
			}
			return now.Sub(since)
		},
	}}, nil
}

// remember records since when recorded servers are unwanted, by the controller's clock.
func (m *Manager) remember(p picture) {
	unwanted := map[string]time.Time{}
	for id, recorded := range p.memberRecord.members {
		if _, isWanted := p.wanted[id]; isWanted && recorded.Network == p.network.ID {
			continue
		}
		since, known := m.unwanted[id]
		if !known {
			since = p.now
		}
		unwanted[id] = since
	}
	m.unwanted = unwanted
	maps.DeleteFunc(m.touched, func(_ string, at time.Time) bool { return p.now.Sub(at) > time.Hour })
	maps.DeleteFunc(m.rests, func(_ string, until time.Time) bool { return p.now.After(until) })
	switch {
	case len(p.wanted) > 0:
		m.idle = time.Time{}
	case m.idle.IsZero():
		m.idle = p.now
	}
}

// confirmWanted lists the Nodes live and returns which are wanted. An empty list is an error: a cluster that is being
// restored has no Nodes.
func (m *Manager) confirmWanted(ctx context.Context) (map[string]*corev1.Node, error) {
	list, err := m.config.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Nodes before servers leave the public network: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("the cluster has no Nodes: servers stay in the public network")
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return wanted(nodes, m.config.Selector), nil
}
