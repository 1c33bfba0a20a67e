package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/dryrun"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// longestRelease is from SIGTERM of the leader to the first change of the next.
const longestRelease = 3 * time.Second

// says waits until the log holds a text.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, 30*time.Second, func() error {
		if !strings.Contains(p.output(), text) {
			return fmt.Errorf("the log does not say %q", text)
		}
		return nil
	})
}

// Leader and standby: the leader is stopped while it is at work. It finishes what is under way, gives
// the Lease back, and does nothing afterwards; the standby goes on within seconds. A standby that is
// stopped does not change the Lease.
//
//proves:known-bugs/leader-election-rights
//proves:known-bugs/lease-not-released
//proves:known-bugs/port-clash
//proves:known-bugs/endless-loops
//proves:service-changes/restart
func TestHandOver(t *testing.T) {
	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	client := admin(t)
	kube := beforeKubernetes(t)
	cloud := before(t, url, http.DefaultTransport)
	leader := startReplica(t, "leader", cloud.url, kube)
	register(t, client, "node-1")
	eventually(t, 60*time.Second, func() error {
		return initialised(getNode(t, client, "node-1"), simtest.Server1ID, "203.0.113.2")
	})
	successor := startReplica(t, "successor", url, nil)
	successor.says("Attempting to acquire leader lease")

	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "released"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error { // it is at work on the Service
		if len(cloud.all()) == 0 {
			return errors.New("nothing was changed in the account")
		}
		return nil
	})
	began := time.Now()
	leader.end()
	ended := time.Now()
	register(t, client, "node-2") // which only the new leader can initialise
	took := untilInitialised(t, client, "node-2", began)
	// a test's output takes everything
	_, _ = fmt.Fprintf(t.Output(), "figure leader_handover %.2f s\n", took.Seconds())
	if limits.Late(took, longestRelease) {
		t.Errorf("the release took %v, want at most %v", took, longestRelease)
	}
	at, ok := kube.released()
	if !ok {
		t.Fatalf("the Lease was not released: %v", kube.all())
	}
	if at.After(ended) || at.Before(began) {
		t.Errorf("the Lease was released %v after SIGTERM", at.Sub(began))
	}
	if late := append(kube.after(at), cloud.after(at)...); len(late) > 0 {
		t.Errorf("the former leader still asked for: %v", late)
	}

	third := beforeKubernetes(t)
	standby := startReplica(t, "standby", url, third)
	standby.says("Attempting to acquire leader lease")
	standby.end()
	if written := third.all(); len(written) > 0 {
		t.Errorf("a standby that ends wrote: %v", written)
	}
	serveAndDelete(t, client, service.Name)
	successor.end()
}

// untilInitialised returns how long after began a Node loses the taint of the kubelet.
func untilInitialised(t *testing.T, client kubernetes.Interface, name string, began time.Time) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watch, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if ok && !tainted(node) {
			return time.Since(began)
		}
	}
	t.Fatalf("node %s is not initialised within 30 s", name)
	return 0
}

func tainted(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return true
		}
	}
	return false
}

// serveAndDelete waits for the address of a Service and deletes it.
func serveAndDelete(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	services := client.CoreV1().Services("default")
	eventually(t, 90*time.Second, func() error {
		got, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && len(got.Status.LoadBalancer.Ingress) == 0 {
			err = fmt.Errorf("no address; annotations %v, conditions %+v", got.Annotations, got.Status.Conditions)
		}
		return err
	})
	if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, func() error {
		got, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("service %+v: %w", got.Status.Conditions, err)
	})
}

// detail asks the controller how the phoenixNAP API does, as an administrator.
func (p *process) detail() (int, string) {
	p.t.Helper()
	config := rest.CopyConfig(plane.Config())
	config.Insecure = true
	config.CAData = nil // the controller's own certificate, on loopback
	transport, err := rest.TransportFor(config)
	if err != nil {
		p.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.health+"/"+apiDetail, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// waitsBecause demands an event on a Node that its server cannot be looked up, with the words of the API.
func waitsBecause(t *testing.T, client kubernetes.Interface, node, words string) error {
	t.Helper()
	events, err := client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + node + ",reason=" + instances.ReasonServerLookupFailed})
	if err != nil {
		return err
	}
	for _, event := range events.Items {
		if strings.Contains(event.Message, words) {
			return nil
		}
	}
	return fmt.Errorf("%d events, none with %q", len(events.Items), words)
}

// The controller starts and stays while the API is down; it is healthy, and its health detail says what is
// the matter. Its log is JSON when asked for, from the first line to the last.
//
//proves:known-bugs/start-without-api
//proves:service-changes/api-down
func TestTheAPIIsDown(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	if err := sim.Arm(pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusServiceUnavailable, Times: -1,
		Path: "/bmc/v1/*"}); err != nil {
		t.Fatal(err)
	}
	client := admin(t)
	p := startController(t, url, "--logging-format=json")
	register(t, client, "node-1")
	eventually(t, 30*time.Second, func() error {
		if status, text := p.detail(); status != http.StatusInternalServerError ||
			!strings.Contains(text, "the phoenixNAP API fails since") {
			return fmt.Errorf("the detail is %d %s", status, text)
		}
		status, body, err := p.askHealth("?verbose")
		if err == nil && (status != http.StatusOK || !strings.Contains(body, "[-]phoenixnap-api failed") ||
			!strings.HasSuffix(body, "healthz check passed\n")) {
			err = fmt.Errorf("/healthz?verbose is %d %s", status, body)
		}
		return err
	})
	eventually(t, 30*time.Second, func() error { return waitsBecause(t, client, "node-1", "503") })
	sim.Disarm()
	eventually(t, 60*time.Second, func() error {
		if status, text := p.detail(); status != http.StatusOK {
			return fmt.Errorf("the detail is %d %s", status, text)
		}
		return initialised(getNode(t, client, "node-1"), simtest.Server1ID, "203.0.113.2")
	})
	p.end()
	lines := bufio.NewScanner(strings.NewReader(p.output()))
	count := 0
	for lines.Scan() {
		var entry struct{ Msg string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil || entry.Msg == "" {
			t.Errorf("no line of a JSON log: %s", lines.Text())
		}
		count++
	}
	if err := lines.Err(); err != nil || count < 10 {
		t.Errorf("%d lines, %v", count, err)
	}
}

// With --dry-run neither the account nor the cluster changes, and the log says what would.
func TestDryRunChangesNothing(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	client := admin(t)
	register(t, client, "node-1")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "not-served"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	service, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Services("default").Delete(context.WithoutCancel(t.Context()), service.Name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	node := getNode(t, client, "node-1")
	kube := beforeKubernetes(t)
	p := startReplica(t, "controller", url, kube, "--dry-run")
	p.says("dry run: would buy IP block")
	p.says("/api/v1/nodes/node-1")
	(&scene{T: t, client: client}).event(20*time.Second, "Service", service.Name, "DryRun", "would buy IP block")
	p.end()

	if now := getNode(t, client, "node-1"); now.ResourceVersion != node.ResourceVersion {
		t.Errorf("the Node was changed: %+v", now)
	}
	now, err := client.CoreV1().Services("default").Get(t.Context(), service.Name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != service.ResourceVersion {
		t.Errorf("the Service was changed: %+v, %v", now, err)
	}
	for _, entry := range sim.Log(0) {
		if entry.Method != http.MethodGet && !strings.Contains(entry.Path, "openid-connect") {
			t.Errorf("the account was asked for %s %s", entry.Method, entry.Path)
		}
	}
	if _, ok := kube.released(); !ok {
		t.Error("the Lease was not released")
	}
}

// A real API server stores nothing of a dry run, neither of a creation nor of a deletion in either
// encoding, but events.
func TestARealAPIServerStoresNothingOfADryRun(t *testing.T) {
	sure := admin(t)
	maps := sure.CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stays"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config := rest.CopyConfig(plane.Config())
		config.ContentType = contentType
		config.Wrap(dryrun.Wrap)
		dry, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		tried := dry.CoreV1().ConfigMaps("default")
		if _, err := tried.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never"}},
			metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		changed := made.DeepCopy()
		changed.Data = map[string]string{"a": "b"}
		if _, err := tried.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if err := tried.Delete(t.Context(), made.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))}); err != nil {
			t.Error(err)
		}
		if err := tried.Delete(t.Context(), made.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}); !apierrors.IsConflict(err) {
			t.Errorf("%s: a deletion of another object: %v, want a conflict", contentType, err)
		}
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "stored-"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
		if _, err := dry.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	if got, err := maps.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil ||
		got.ResourceVersion != made.ResourceVersion {
		t.Errorf("%+v, %v; want it unchanged", got, err)
	}
	if _, err := maps.Get(t.Context(), "never", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was created: %v", err)
	}
	events, err := sure.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	stored := 0
	for _, event := range events.Items {
		if strings.HasPrefix(event.Name, "stored-") {
			stored++
		}
	}
	if err != nil || stored != 2 {
		t.Errorf("%d events were stored, %v; want 2", stored, err)
	}
}
