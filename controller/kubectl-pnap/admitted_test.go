package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// everyQuestion returns all that the plugin can ask about an address; about the node if it is not valid.
func everyQuestion(address netip.Addr) (all []question) {
	for _, output := range outputs {
		for _, fix := range append([]string{""}, fixTools...) {
			for _, strict := range []bool{false, true} {
				all = append(all, question{address: address, output: output, fix: fix, strict: strict})
			}
		}
	}
	return all
}

// canSend reports whether the plugin can send a command.
func canSend(command []string) bool {
	var address netip.Addr
	if len(command) > 3 && command[2] == "vip" {
		parsed, err := netip.ParseAddr(command[3])
		if err != nil || !parsed.Is4() {
			return false
		}
		address = parsed
	}
	return slices.ContainsFunc(everyQuestion(address), func(q question) bool {
		return slices.Equal(q.options().Command, command)
	})
}

// fragments are what a command line is made of, by someone who wants another one to be admitted.
var fragments = []string{
	"--kubeconfig=/dev/stdin", "--kubeconfig", "/dev/stdin", "--node-name=srv-b", "--node-name", "--timeout=24h",
	"--watch", "--watch=1s", "--npd", "--vlan=1", "--network=0.0.0.0/0", "--address=203.0.113.2", "--interface=eth0",
	"--uplink=bond0", "--kube-vip-namespace=default", "-o", "-ojson", "-v=9", "--vmodule=*=9", "--", "-", "", " ", "\n",
	"--output", "json", "--output=json", "--output=text\n--kubeconfig=/dev/stdin", "--output=xml", "--out=json",
	"--fix", "netplan", "--fix=netplan", "--fix=../netplan", "--strict", "--strict=true", "-strict", "--help",
	"vip", "explain", "PN301", "run", "cleanup", "started", "diagnose", "/phoenixnap-agent", "sh", "-c", "203.0.113.018",
	"256.0.0.1", "1.2.3", "0x7f.0.0.1", "2001:db8::1", "::ffff:203.0.113.18", "203.0.113.18%eth0", "203.0.113.18/32",
}

// distort changes a command a little.
func distort(random *rand.Rand, command []string) []string {
	command = slices.Clone(command)
	at := random.IntN(len(command))
	switch fragment := fragments[random.IntN(len(fragments))]; random.IntN(8) {
	case 0:
		return slices.Insert(command, at, fragment)
	case 1:
		return append(command, fragment)
	case 2:
		return slices.Delete(command, at, at+1)
	case 3:
		command[at] = fragment
	case 4:
		return append(command, command[at]) // a repeated flag
	case 5:
		other := random.IntN(len(command))
		command[at], command[other] = command[other], command[at]
	case 6: // two arguments in one
		if at+1 < len(command) {
			command[at] += []string{"\n", " ", "=", "", "\x00"}[random.IntN(5)] + command[at+1]
			return slices.Delete(command, at+1, at+2)
		}
	case 7: // one argument in two, or with more characters
		if flag, value, found := strings.Cut(command[at], "="); found && random.IntN(2) == 0 {
			command[at] = flag
			return slices.Insert(command, at+1, value)
		}
		command[at] += []string{"\n", " ", "x", "\x00", "\r"}[random.IntN(5)]
	}
	return command
}

// generated returns a command: one that the plugin sends, distorted up to three times.
func generated(random *rand.Rand) []string {
	var address netip.Addr
	if random.IntN(2) == 0 {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], random.Uint32())
		address = netip.AddrFrom4(raw)
	}
	all := everyQuestion(address)
	command := all[random.IntN(len(all))].options().Command
	for range random.IntN(4) {
		if len(command) > 0 {
			command = distort(random, command)
		}
	}
	return command
}

// waiting creates a pod of an agent that is on no Node: a request to run something in it fails, once it is admitted.
func (s fixture) waiting(name string) {
	s.Helper()
	pods := s.kube.CoreV1().Pods(metav1.NamespaceSystem)
	_, err := pods.Create(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: "phoenixnap-agent", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "agent", Image: "none"}, {Name: "another", Image: "none"}}}},
		metav1.CreateOptions{})
	s.ok(err)
	s.Cleanup(func() {
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
		s.ok(pods.Delete(context.WithoutCancel(s.Context()), name, now))
	})
}

// admitted reports whether a user's request to run something in a pod without a Node passes admission.
func (s fixture) admitted(user kubernetes.Interface, pod string, options *corev1.PodExecOptions) bool {
	s.Helper()
	err := user.CoreV1().RESTClient().Get().Resource("pods").Namespace(metav1.NamespaceSystem).Name(pod).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec).Do(s.Context()).Error()
	switch {
	case apierrors.IsBadRequest(err): // the pod has no Node, or no such container
		return true
	case err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'phoenixnap-diagnose'"):
		return false
	}
	s.Fatalf("%q in %s: %v", options.Command, pod, err)
	return false
}

// asOperator returns a user with the shipped rights, once the policy is in force, and a pod that waits for a Node.
func (s fixture) asOperator() (user kubernetes.Interface, config *rest.Config, pod string) {
	s.Helper()
	config = s.operator()
	s.ok(plane.ApplyFiles(s.Context(), deploy("base", "agent.yaml")))
	pod = "phoenixnap-agent-waits"
	s.waiting(pod)
	user, err := kubernetes.NewForConfig(config)
	s.ok(err)
	shell := &corev1.PodExecOptions{Container: container, Command: []string{"sh"}, Stdout: true}
	eventually(s.T, func() bool { return !s.admitted(user, pod, shell) }, "an operator may run a shell")
	return user, config, pod
}

// TestThePolicyAdmitsWhatThePluginSends: every command line that the plugin can send, and no other one.
func TestThePolicyAdmitsWhatThePluginSends(t *testing.T) {
	s := newFixture(t)
	user, _, pod := s.asOperator()
	addresses := []string{"", "0.0.0.0", "203.0.113.18", "255.255.255.255", "100.64.9.199", "10.25.250.249"}
	for _, address := range addresses {
		var about netip.Addr
		if address != "" {
			about = addr(address)
		}
		for _, q := range everyQuestion(about) {
			if !s.admitted(user, pod, q.options()) {
				t.Errorf("refused: %q", q.options().Command)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	count := map[bool]int{}
	for range seeds.Count(t, 400) {
		command := generated(random)
		want := canSend(command)
		count[want]++
		options := &corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}
		if got := s.admitted(user, pod, options); got != want {
			t.Errorf("%q: admitted %t, want %t", command, got, want)
		}
	}
	if count[true] < 50 || count[false] < 150 {
		t.Errorf("%d command lines can be sent, and %d cannot", count[true], count[false])
	}
}

// TestThePolicyAdmitsNoInput: what the plugin sends, with another container, pod or stream.
func TestThePolicyAdmitsNoInput(t *testing.T) {
	s := newFixture(t)
	user, _, pod := s.asOperator()
	s.waiting("etcd-srv-a")
	for what, tc := range map[string]struct {
		pod    string
		change func(*corev1.PodExecOptions)
	}{
		"input":             {pod, func(o *corev1.PodExecOptions) { o.Stdin = true }},
		"a terminal":        {pod, func(o *corev1.PodExecOptions) { o.TTY = true; o.Stderr = false }},
		"both":              {pod, func(o *corev1.PodExecOptions) { o.Stdin = true; o.TTY = true; o.Stderr = false }},
		"no output":         {pod, func(o *corev1.PodExecOptions) { o.Stdout = false }},
		"no errors":         {pod, func(o *corev1.PodExecOptions) { o.Stderr = false }},
		"another container": {pod, func(o *corev1.PodExecOptions) { o.Container = "another" }},
		"no container":      {pod, func(o *corev1.PodExecOptions) { o.Container = "" }},
		"another pod":       {"etcd-srv-a", func(*corev1.PodExecOptions) {}},
	} {
		options := question{output: outputText}.options()
		tc.change(options)
		if s.admitted(user, tc.pod, options) {
			t.Errorf("admitted: %s", what)
		}
	}
}

// TestWhoMayDiagnoseHasNoOtherWayIn: other ways into the pod of an agent need other rights.
func TestWhoMayDiagnoseHasNoOtherWayIn(t *testing.T) {
	s := newFixture(t)
	user, _, pod := s.asOperator()
	pods := user.CoreV1().RESTClient()
	debug := []byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"none"}]}}`)
	for what, request := range map[string]*rest.Request{
		"pods/attach":         pods.Post().SubResource("attach"),
		"pods/attach, get":    pods.Get().SubResource("attach"),
		"pods/portforward":    pods.Post().SubResource("portforward"),
		"pods/proxy":          pods.Get().SubResource("proxy"),
		"pods/log":            pods.Get().SubResource("log"),
		"ephemeralcontainers": pods.Patch(types.StrategicMergePatchType).SubResource("ephemeralcontainers").Body(debug),
		"pods":                pods.Patch(types.StrategicMergePatchType).Body(debug),
	} {
		err := request.Resource("pods").Namespace(metav1.NamespaceSystem).Name(pod).Do(s.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), `User "operator" cannot`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// theft is a kubeconfig that runs a command and sends the content of a file to a server.
type theft struct {
	server         *httptest.Server
	requests       atomic.Int32
	marker, secret string
}

func newTheft(t *testing.T) *theft {
	x := &theft{marker: filepath.Join(t.TempDir(), "executed"), secret: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(x.secret, []byte("the-token-of-the-agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			x.requests.Add(1)
		}
	}))
	t.Cleanup(x.server.Close)
	return x
}

// kubeconfig has the credentials of the given user entry. Clients use credentials only for servers with TLS.
func (x *theft) kubeconfig(user string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a",
"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"clusters":[{"name":"a","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"a","user":%s}]}`, x.server.URL, user)
}

// TestNoKubeconfigReachesAnAgent tries to have the agent of a node follow a kubeconfig: as a user who may diagnose,
// whom the policy refuses, and as an administrator, whom the agent itself refuses.
func TestNoKubeconfigReachesAnAgent(t *testing.T) {
	s := newFixture(t)
	_, operator, _ := s.asOperator()
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	x := newTheft(t)
	users := map[string]string{
		"exec": fmt.Sprintf(`{"exec":{"apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never",
"command":"touch","args":[%q]}}`, x.marker),
		"tokenFile": fmt.Sprintf(`{"tokenFile":%q}`, x.secret),
	}
	for what, user := range users {
		for who, config := range map[string]*rest.Config{"operator": operator, "administrator": plane.Config()} {
			out, err := s.execWith(config, strings.NewReader(x.kubeconfig(user)),
				[]string{program, "diagnose", "--kubeconfig=/dev/stdin", "--output=text"})
			drain(k.asked)
			if who == "administrator" && (codeOf(err) != exitUsage || !strings.Contains(out, "--kubeconfig")) {
				t.Errorf("%s with %s: %v: %s", who, what, err, out)
			}
			if _, err := os.Stat(x.marker); err == nil {
				t.Errorf("%s had the agent run a command", who)
				s.ok(os.Remove(x.marker))
			}
			if n := x.requests.Swap(0); n > 0 {
				t.Errorf("%s received the content of a file of the agent in %d requests", who, n)
			}
		}
	}
}

// execWith runs a command with an input in the pod of the agent of srv-a, and returns what it prints.
func (s fixture) execWith(as *rest.Config, input *strings.Reader, command []string) (string, error) {
	s.Helper()
	client, err := kubernetes.NewForConfig(as)
	s.ok(err)
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceSystem).
		Name("phoenixnap-agent-srv-a").SubResource("exec").VersionedParams(&corev1.PodExecOptions{Container: container,
		Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(as, "GET", request.URL().String())
	s.ok(err)
	var out, errOut bytes.Buffer
	err = executor.StreamWithContext(s.Context(), remotecommand.StreamOptions{Stdin: input, Stdout: &out,
		Stderr: &errOut})
	return out.String() + errOut.String(), err
}
