package allocation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// dataKey is where the ConfigMap holds the ledger.
const dataKey = "ledger.json"

// document is a ledger as it is stored.
type document struct {
	BlockID      string                   `json:"blockID"`
	CIDR         netip.Prefix             `json:"cidr"`
	Closed       bool                     `json:"closed,omitempty"`
	AssignedHere bool                     `json:"assignedHere,omitempty"`
	Held         map[netip.Addr]holder    `json:"held"`
	Resting      map[netip.Addr]restEntry `json:"resting,omitempty"`
}

type holder struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

type restEntry struct {
	Holder holder    `json:"holder"`
	Since  time.Time `json:"since"`
}

// encode makes the ConfigMap of a ledger. A ledger that breaks its own rules is not stored.
func encode(l plan.Ledger) (*corev1.ConfigMap, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("ledger of IP block %s is not stored: %w", l.BlockID, err)
	}
	d := document{BlockID: l.BlockID, CIDR: l.CIDR, Closed: l.Closed, AssignedHere: l.AssignedHere,
		Held: map[netip.Addr]holder{}, Resting: map[netip.Addr]restEntry{}}
	for address, h := range l.Held {
		d.Held[address] = holder(h)
	}
	for address, r := range l.Resting {
		d.Resting[address] = restEntry{Holder: holder(r.Holder), Since: r.Since.UTC()}
	}
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the ledger of IP block %s: %w", l.BlockID, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: NamePrefix + l.BlockID, Namespace: metav1.NamespaceSystem, ResourceVersion: l.Version,
			Labels: map[string]string{Label: contract.TagTrue},
		},
		Data: map[string]string{dataKey: string(raw)},
	}, nil
}

// decode reads the ledger in a ConfigMap.
func decode(object *corev1.ConfigMap) (plan.Ledger, error) {
	l, err := parse(object.Data[dataKey])
	if err == nil && object.Name != NamePrefix+l.BlockID {
		err = fmt.Errorf("it is the ledger of IP block %q", l.BlockID)
	}
	if err != nil {
		return plan.Ledger{},
			fmt.Errorf("ConfigMap %s/%s, key %s: %w; restore it from a backup, or correct it by the addresses in the "+
				"status of Services",
				object.Namespace, object.Name, dataKey, err)
	}
	l.Version = object.ResourceVersion
	return l, nil
}

// parse reads a stored ledger. What it does not know is an error: a later version may mean something by it.
func parse(raw string) (plan.Ledger, error) {
	var d document
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return plan.Ledger{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return plan.Ledger{}, errors.New("more follows behind the ledger")
	}
	l := plan.Ledger{
		BlockID: d.BlockID, CIDR: d.CIDR, Closed: d.Closed, AssignedHere: d.AssignedHere,
		Held: map[netip.Addr]plan.Holder{}, Resting: map[netip.Addr]plan.Rest{},
	}
	for address, h := range d.Held {
		l.Held[address] = plan.Holder(h)
	}
	for address, r := range d.Resting {
		l.Resting[address] = plan.Rest{Holder: plan.Holder(r.Holder), Since: r.Since}
	}
	return l, l.Check()
}
