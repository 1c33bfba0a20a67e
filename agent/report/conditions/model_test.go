package conditions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// server is an API server that holds one Node at most, reached over HTTP without a network: a patch of its status is
// merged, checked against the UID that it names, and stored under the next resource version. Its faults can be chosen.
type server struct {
	mu      sync.Mutex
	node    *corev1.Node
	version int
	uids    int
	// down refuses connections; loses stores and then loses the answer; hangs never answers.
	down, loses, hangs bool
	// refuseAnnotations answers as if the annotations were too long together.
	refuseAnnotations bool
	requests, stored  int
	// watched are the versions that the watch has not delivered yet; nil is a deletion.
	watched []*corev1.Node
}

func (s *server) client(t *testing.T) Nodes {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: s, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().Nodes()
}

var errAway = errors.New("connection refused")

// RoundTrip serves PATCH /api/v1/nodes/srv-a/status.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests++
	hangs, down := s.hangs, s.down
	s.mu.Unlock()
	if down {
		return nil, errAway
	}
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/nodes/srv-a/status" ||
		r.Header.Get("Content-Type") != string(types.StrategicMergePatchType) {
		return nil, fmt.Errorf("unexpected %s %s", r.Method, r.URL)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code, answer := s.patch(body)
	if s.loses {
		return nil, errAway
	}
	raw, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)), Request: r,
	}, err
}

func (s *server) patch(body []byte) (int, any) {
	var asked struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	switch {
	case s.node == nil:
		return refused(http.StatusNotFound, metav1.StatusReasonNotFound)
	case asked.Metadata.UID != "" && asked.Metadata.UID != s.node.UID:
		return refused(http.StatusConflict, metav1.StatusReasonConflict)
	case s.refuseAnnotations && len(asked.Metadata.Annotations) > 0:
		return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	before, err := json.Marshal(s.node)
	if err != nil {
		return refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, body, corev1.Node{})
	next := &corev1.Node{}
	if err != nil || json.Unmarshal(merged, next) != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	s.stored++
	s.store(next)
	return http.StatusOK, s.node
}

func refused(code int, reason metav1.StatusReason) (int, any) {
	return code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: reason, Message: string(reason),
	}
}

// store keeps a version of the Node and queues it for the watch.
func (s *server) store(node *corev1.Node) {
	s.version++
	node.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	node.ResourceVersion = strconv.Itoa(s.version)
	s.node = node
	s.watched = append(s.watched, node.DeepCopy())
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// register makes a Node with a UID of its own, unless there is one.
func (s *server) register() {
	s.set(func(s *server) {
		if s.node != nil {
			return
		}
		s.uids++
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: types.UID("u" + strconv.Itoa(s.uids))}}
		node.Status.Conditions = []corev1.NodeCondition{kubeletCondition()}
		s.store(node)
	})
}

func (s *server) remove() {
	s.set(func(s *server) {
		if s.node != nil {
			s.node = nil
			s.watched = append(s.watched, nil)
		}
	})
}

// edit is a write by another client.
func (s *server) edit(change func(*corev1.Node)) {
	s.set(func(s *server) {
		if s.node != nil {
			next := s.node.DeepCopy()
			change(next)
			s.store(next)
		}
	})
}

// deliver hands what happened to a watcher, in order; while the server is away nothing comes.
func (s *server) deliver(to *Publisher) {
	for {
		s.mu.Lock()
		if s.down || len(s.watched) == 0 {
			s.mu.Unlock()
			return
		}
		next := s.watched[0]
		s.watched = s.watched[1:]
		s.mu.Unlock()
		to.Observe(next)
	}
}

// counts returns how many requests came and how many patches were stored.
func (s *server) counts() (requests, stored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.stored
}

// shows describes what the Node says of ours, and whether it kept what the kubelet says.
func (s *server) shows() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return "no Node"
	}
	var parts []string
	for _, kind := range []corev1.NodeConditionType{contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy,
		corev1.NodeReady} {
		if c := contract.FindNodeCondition(s.node, kind); c != nil {
			parts = append(parts, fmt.Sprintf("%s=%s %s %s", kind, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(append(parts, "identity="+s.node.Annotations[contract.NodeReportedIdentity],
		"foreign="+s.node.Annotations["example.com/foreign"]), "\n")
}
