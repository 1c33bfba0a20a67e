package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

const (
	// RecordName is the ConfigMap in kube-system that records which servers the controller joined.
	RecordName = "phoenixnap-members"
	// recordKey is the key of the record of the default network.
	recordKey = "members.json"
)

// keyOf is the key of the record of a network.
func keyOf(network string) string {
	if network == v1beta1.DefaultNetwork {
		return recordKey
	}
	return "network-" + network + ".json"
}

// errChanged reports that the stored record is not the one that was read.
var errChanged = errors.New("the record of joined servers changed in the meantime")

// joined is one server that the controller joined, or is about to join, to a network.
type joined struct {
	// Network is the ID of the public network.
	Network string `json:"network"`
	// Address is the server's address; the zero Addr when it has none.
	Address netip.Addr `json:"address,omitzero"`
	// Node is the name of the Node at that time.
	Node string `json:"node"`
	// Since is when the controller decided to join the server.
	Since time.Time `json:"since"`
}

// memberRecord is the record of all servers that the controller joined, by server ID. It is a value: with and without
// return new records. Only recorded servers are ever removed from a network.
type memberRecord struct {
	members map[string]joined
	version string
	// others are the records of other networks in the same object, as they are.
	others map[string]string
}

func (r memberRecord) with(serverID string, j joined) memberRecord {
	members := map[string]joined{}
	maps.Copy(members, r.members)
	members[serverID] = j
	return memberRecord{members, r.version, r.others}
}

func (r memberRecord) without(serverID string) memberRecord {
	members := maps.Clone(r.members)
	delete(members, serverID)
	return memberRecord{members, r.version, r.others}
}

// recordStore stores the record in the cluster.
type recordStore struct {
	configMaps typedcorev1.ConfigMapInterface
	key        string
}

// newRecordStore stores the record of a public network of a name.
func newRecordStore(kube kubernetes.Interface, network string) recordStore {
	return recordStore{configMaps: kube.CoreV1().ConfigMaps(metav1.NamespaceSystem), key: keyOf(network)}
}

// load reads the stored record, if any. An invalid one is an error: a server without a record would never leave.
func (s recordStore) load(ctx context.Context) (memberRecord, error) {
	object, err := s.configMaps.Get(ctx, RecordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return memberRecord{}, nil
	case err != nil:
		return memberRecord{}, fmt.Errorf("read the record of joined servers: %w", err)
	}
	others := maps.Clone(object.Data)
	raw, recorded := others[s.key]
	delete(others, s.key)
	if !recorded && (s.key != recordKey || len(others) > 0) { // nothing of this network yet
		return memberRecord{version: object.ResourceVersion, others: others}, nil
	}
	members, err := parseRecord(raw)
	if err != nil {
		return memberRecord{}, fmt.Errorf("ConfigMap %s/%s, key %s: %w; restore it from a backup, or delete it and "+
			"remove servers from the network manually", metav1.NamespaceSystem, RecordName, s.key, err)
	}
	return memberRecord{members: members, version: object.ResourceVersion, others: others}, nil
}

// save stores the record by compare-and-swap and returns it with its new version; errChanged if another was stored.
func (s recordStore) save(ctx context.Context, r memberRecord) (memberRecord, error) {
	raw, err := json.MarshalIndent(r.members, "", "  ")
	if err != nil {
		return memberRecord{}, fmt.Errorf("encode the record of joined servers: %w", err)
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: RecordName, Namespace: metav1.NamespaceSystem, ResourceVersion: r.version},
		Data:       map[string]string{s.key: string(raw)},
	}
	maps.Copy(object.Data, r.others)
	var stored *corev1.ConfigMap
	if r.version == "" {
		stored, err = s.configMaps.Create(ctx, object, metav1.CreateOptions{})
	} else {
		stored, err = s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return memberRecord{}, fmt.Errorf("save the record of joined servers: %w (%w)", errChanged, err)
	case err != nil:
		return memberRecord{}, fmt.Errorf("save the record of joined servers: %w", err)
	}
	return memberRecord{members: r.members, version: stored.ResourceVersion, others: r.others}, nil
}

// parseRecord parses a stored record. An unknown field is an error: a later version may rely on it.
func parseRecord(raw string) (map[string]joined, error) {
	var members map[string]joined
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&members); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the record")
	}
	for id, j := range members {
		if id == "" || j.Network == "" {
			return nil, fmt.Errorf("server %q has no network", id)
		}
	}
	return members, nil
}
