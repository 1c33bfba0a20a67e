package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

const (
	// shippedAccount is the shipped ServiceAccount as the API server names it.
	shippedAccount = "system:serviceaccount:kube-system:phoenixnap-cloud-controller-manager"
	// auditPolicy has the API server write down what that ServiceAccount asks for, and nothing else.
	auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],
"rules":[{"level":"Metadata","users":["` + shippedAccount + `"]},{"level":"None"}]}`
)

// auditLog is the file that the API server of the tests writes.
var auditLog string

// advertised is the address that the API server of the tests writes into the endpoints of default/kubernetes. It
// listens on loopback only, which endpoints may not hold: the address is this machine's, so that clients learn at
// once that nothing listens there, or one that has no route.
func advertised() string {
	addresses, _ := net.InterfaceAddrs() // without any the other one will do
	for _, each := range addresses {
		if prefix, ok := each.(*net.IPNet); ok && prefix.IP.To4() != nil && prefix.IP.IsGlobalUnicast() {
			return prefix.IP.String()
		}
	}
	return "203.0.113.77"
}

// runTests runs the tests around one control plane that keeps an audit log.
func runTests(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "phoenixnap-audit-*")
	if err != nil {
		return complain(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	policy := filepath.Join(dir, "policy.json")
	auditLog = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return complain(err)
	}
	plane, err = controlplane.Start(ctx, controlplane.Options{APIServerArgs: []string{
		"--endpoint-reconciler-type=lease", "--advertise-address=" + advertised(),
		"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog,
	}, Manifests: []string{"deploy/crds/policy.yaml"}})
	if err != nil {
		return complain(err)
	}
	code := m.Run()
	if err := plane.Stop(); err != nil {
		return max(code, complain(err))
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// asked is one request in the audit log.
type asked struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct {
		Resource, Subresource, APIGroup, Namespace, Name string
	}
	ResponseStatus struct{ Code int }
}

// resource is what RBAC calls a resource, such as nodes/status.
func (a asked) resource() string {
	if a.ObjectRef.Subresource == "" {
		return a.ObjectRef.Resource
	}
	return a.ObjectRef.Resource + "/" + a.ObjectRef.Subresource
}

func (a asked) String() string {
	return fmt.Sprintf("%s %s %q in %q: %d", a.Verb, a.resource(), a.ObjectRef.Name, a.ObjectRef.Namespace,
		a.ResponseStatus.Code)
}

// auditedSoFar is how long the audit log is.
func auditedSoFar(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(auditLog)
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// audited returns what the ServiceAccount asked for since the log had the given length.
func audited(t *testing.T, since int64) []asked {
	t.Helper()
	log, err := os.Open(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(since, 0); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	var all []asked
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		if a.User.Username == shippedAccount {
			all = append(all, a)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
