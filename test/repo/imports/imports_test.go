package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/phoenixnap/k8s-cloud-provider-bmc/v2"

// pkg is what `go list -json` prints for a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	// What its tests import, those in a package of their own apart.
	TestImports, XTestImports []string
}

// rule forbids imports. Paths without a dot in their first element are packages of the standard
// library, paths with a leading "/" belong to this module, and a trailing "/..." includes what lies below.
type rule struct {
	name string
	// in are the packages that the rule binds, except those in but.
	in, but []string
	// forbid are the packages that they may not import.
	forbid []string
	// transitive includes imports of imports: what ends up in the binary.
	transitive bool
	// tests includes what the tests of the package import themselves.
	tests bool
	why   string
}

var rules = []rule{
	{
		name: "controller without agent", in: []string{"/controller/..."}, forbid: []string{"/agent/..."},
		transitive: true,
		why:        "they are two processes with different privileges; they talk through Kubernetes objects only",
	},
	{
		name: "agent without controller", in: []string{"/agent/..."}, forbid: []string{"/controller/..."},
		transitive: true,
		why:        "they are two processes with different privileges; they talk through Kubernetes objects only",
	},
	{
		name: "agent without phoenixNAP credentials", in: []string{"/agent/..."},
		forbid:     []string{"github.com/phoenixnap/go-sdk-bmc/...", "golang.org/x/oauth2/clientcredentials"},
		transitive: true,
		why: "the agent runs on every node; code that cannot call the phoenixNAP API cannot leak its " +
			"credentials",
	},
	{
		name: "plugin without phoenixNAP credentials", in: []string{"/controller/kubectl-pnap/..."},
		forbid:     []string{"github.com/phoenixnap/go-sdk-bmc/...", "golang.org/x/oauth2/clientcredentials"},
		transitive: true,
		why:        "it shows what stands in the cluster, with the rights of whoever runs it",
	},
	{
		name: "one importer of the SDK", in: []string{"/controller/..."}, but: []string{"/controller/cloud/pnap"},
		forbid: []string{"github.com/phoenixnap/go-sdk-bmc/...", "golang.org/x/oauth2/clientcredentials"},
		tests:  true,
		why:    "errors of the API are classified and credentials are kept in one place",
	},
	{
		name: "cloud without load balancers", in: []string{"/controller/cloud/..."},
		forbid:     []string{"/controller/loadbalancer/..."},
		transitive: true,
		tests:      true,
		why:        "the account is what Services and Nodes stand on; its values know nothing of either",
	},
	{
		name: "controller without kernel", in: []string{"/controller/...", "/pkg/..."},
		forbid:     []string{"github.com/vishvananda/...", "github.com/mdlayher/..."},
		transitive: true,
		tests:      true,
		why:        "the controller needs no privilege on the node",
	},
	{
		name: "pure packages", in: []string{"/pkg/...", "/agent/verify/check", "/agent/announce/election",
			"/controller/loadbalancer/ipblock", "/controller/loadbalancer/plan", "/controller/cloud/network",
			"/controller/loadbalancer/announcer/reports"},
		but: []string{"/pkg/api/client", "/pkg/listen"},
		forbid: []string{
			"net", "net/http", "os", "os/exec", "syscall", "io/fs",
			"golang.org/x/sys/...", "k8s.io/client-go/...", "k8s.io/klog/...",
		},
		why: "decisions are functions of values; what does I/O cannot be tested by tables and random starts",
	},
	{
		name: "IP blocks without Services", in: []string{"/controller/loadbalancer/ipblock"},
		forbid: []string{"k8s.io/api/core/v1", "/controller/loadbalancer/..."},
		why:    "what a block needs next follows from the block, its network and what is asked for, whoever asks",
	},
	{
		name: "what is bought without Services", in: []string{"/controller/loadbalancer/allocation",
			"/controller/loadbalancer/purchase", "/controller/node/..."},
		forbid: []string{"/controller/loadbalancer/plan", "/controller/loadbalancer/reconcile",
			"/controller/loadbalancer/service"},
		why: "the same block is bought and recorded for a Service, for many and for nodes",
	},
	{
		name: "one list of announcers", in: []string{"/agent/verify/...", "/agent/report/..."},
		but: []string{"/agent/verify/announcer/kinds"},
		forbid: []string{"/agent/verify/announcer/kubevip", "/agent/verify/announcer/agents",
			"/agent/verify/announcer/kinds"},
		why: "what differs between announcers is behind one interface, so another kind is one more package",
	},
	{
		name: "pkg imports no room", in: []string{"/pkg/..."}, forbid: []string{"/controller/...", "/agent/..."},
		transitive: true,
		why:        "pkg is what both binaries agree on",
	},
	{
		name: "product without tests", in: []string{"/controller/...", "/agent/...", "/pkg/..."},
		forbid: []string{"/test/..."}, transitive: true,
		why: "simulator and lab must not end up in a shipped binary",
	},
}

//proves:known-bugs/agent-credentials
func TestImportRules(t *testing.T) {
	packages := list(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			bound := 0
			for _, p := range packages {
				if !matchesAny(p.ImportPath, r.in) || matchesAny(p.ImportPath, r.but) {
					continue
				}
				bound++
				for _, broken := range violations(r, p) {
					t.Errorf("%s imports %s: %s", p.ImportPath, broken, r.why)
				}
			}
			if bound == 0 {
				t.Errorf("the rule binds no package; its patterns %q are out of date", r.in)
			}
		})
	}
}

// TestRulesBite proves that a rule reports a package that breaks it and no other.
func TestRulesBite(t *testing.T) {
	guilty := map[string]pkg{
		"controller without agent": {ImportPath: module + "/controller",
			Deps: []string{module + "/agent/verify/check"}},
		"agent without controller": {ImportPath: module + "/agent",
			Deps: []string{module + "/controller/cloud/pnap"}},
		"agent without phoenixNAP credentials": {ImportPath: module + "/agent/wire/arp",
			Deps: []string{"golang.org/x/oauth2/clientcredentials"}},
		"plugin without phoenixNAP credentials": {ImportPath: module + "/controller/kubectl-pnap",
			Deps: []string{"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"}},
		"one importer of the SDK": {ImportPath: module + "/controller/cloud/provider",
			Imports: []string{"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"}},
		"cloud without load balancers": {ImportPath: module + "/controller/cloud/account",
			Imports: []string{module + "/controller/loadbalancer/plan"},
			Deps:    []string{module + "/controller/loadbalancer/plan"}},
		"controller without kernel": {ImportPath: module + "/controller/cloud/provider",
			Deps: []string{"github.com/vishvananda/netlink"}},
		"pure packages": {ImportPath: module + "/agent/verify/check", Imports: []string{"net/http"}},
		"IP blocks without Services": {ImportPath: module + "/controller/loadbalancer/ipblock",
			Imports: []string{"k8s.io/api/core/v1"}},
		"what is bought without Services": {ImportPath: module + "/controller/node/membership",
			Imports: []string{module + "/controller/loadbalancer/plan"}},
		"one list of announcers": {ImportPath: module + "/agent/verify/vip",
			Imports: []string{module + "/agent/verify/announcer/kubevip"}},
		"pkg imports no room":   {ImportPath: module + "/pkg/contract", Deps: []string{module + "/controller/config"}},
		"product without tests": {ImportPath: module + "/agent", Deps: []string{module + "/test/env/lab"}},
	}
	inTest := pkg{ImportPath: module + "/controller/config", XTestImports: []string{"github.com/vishvananda/netlink"}}
	innocent := pkg{ImportPath: module + "/pkg/contract", Imports: []string{"net/netip", "time"},
		Deps: []string{"net/netip", "time"}}
	for _, r := range rules {
		if r.name == "controller without kernel" && len(violations(r, inTest)) == 0 {
			t.Errorf("rule %q does not report the test %+v", r.name, inTest)
		}
		if len(violations(r, guilty[r.name])) == 0 {
			t.Errorf("rule %q does not report %+v", r.name, guilty[r.name])
		}
		if broken := violations(r, innocent); len(broken) > 0 {
			t.Errorf("rule %q reports a correct package for %q", r.name, broken)
		}
	}
}

func violations(r rule, p pkg) []string {
	imported := p.Imports
	if r.transitive {
		imported = p.Deps
	}
	if r.tests {
		imported = slices.Concat(imported, p.TestImports, p.XTestImports)
	}
	var broken []string
	for _, path := range imported {
		if matchesAny(path, r.forbid) {
			broken = append(broken, path)
		}
	}
	return broken
}

func matchesAny(path string, patterns []string) bool {
	for _, pattern := range patterns {
		if strings.HasPrefix(pattern, "/") {
			pattern = module + pattern
		}
		base, deep := strings.CutSuffix(pattern, "/...")
		if path == base || deep && strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports",
		module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read what go list prints: %v", err)
		}
		packages = append(packages, p)
	}
}
