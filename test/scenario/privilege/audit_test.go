package privilege

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const (
	// account is the shipped ServiceAccount as the API server names it.
	account  = "system:serviceaccount:kube-system:phoenixnap-agent"
	manifest = "../../../deploy/base/agent.yaml"
	policies = "../../../deploy/base/agent-policy.yaml"
	// auditPolicy has the API server write down what that ServiceAccount asks for, and nothing else.
	auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],
"rules":[{"level":"Metadata","users":["` + account + `"]},{"level":"None"}]}`
)

// asked is one request in the audit log.
type asked struct {
	Verb       string
	RequestURI string
	ObjectRef  struct{ Resource, Subresource, APIGroup, Namespace, Name string }

	ResponseStatus struct{ Code int }
}

// String is what RBAC calls a request: "patch nodes/status", "get leases.coordination.k8s.io".
func (a asked) String() string {
	resource := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		resource += "/" + a.ObjectRef.Subresource
	}
	return right(a.Verb, a.ObjectRef.APIGroup, resource)
}

func right(verb, group, resource string) string {
	if group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

func audited(t *testing.T, path string) []asked {
	t.Helper()
	log, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	var all []asked
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		all = append(all, a)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// granted reads the rights of the manifest, each with where it holds: "" is the whole cluster.
func granted(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(manifest))
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string][]string{}
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var role rbacv1.Role // a ClusterRole has the same fields
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						name := right(verb, group, resource)
						rights[name] = append(rights[name], role.Namespace)
					}
				}
			}
		}
	}
	return rights
}

// checkRights compares what was requested with what is granted: nothing was refused, nothing is granted that was not
// used, and nothing is granted in the whole cluster that was used in only one namespace.
func checkRights(rights map[string][]string, requests []asked) (problems []string) {
	used := map[string]map[string]bool{}
	for _, a := range requests {
		if a.ResponseStatus.Code == http.StatusForbidden {
			problems = append(problems, fmt.Sprintf("refused: %s %s", a, a.RequestURI))
		}
		if used[a.String()] == nil {
			used[a.String()] = map[string]bool{}
		}
		used[a.String()][a.ObjectRef.Namespace] = true
	}
	for _, name := range slices.Sorted(maps.Keys(rights)) {
		where := used[name]
		for _, namespace := range rights[name] {
			switch {
			case len(where) == 0:
				problems = append(problems, "granted and never used: "+name)
			case namespace == "" && len(where) == 1 && where["kube-system"]:
				problems = append(problems, "granted everywhere, used only in kube-system: "+name)
			case namespace != "" && !where[namespace]:
				problems = append(problems, "granted in "+namespace+", used elsewhere: "+name)
			}
		}
	}
	return problems
}

func TestCheckRights(t *testing.T) {
	rights := map[string][]string{"get nodes": {""}, "get leases.g": {""}, "update leases.g": {"kube-system"}}
	request := func(verb, group, resource, namespace string, code int) asked {
		a := asked{Verb: verb}
		a.ObjectRef.APIGroup = group
		a.ObjectRef.Resource = resource
		a.ObjectRef.Namespace = namespace
		a.ResponseStatus.Code = code
		return a
	}
	for name, tc := range map[string]struct {
		requests []asked
		want     []string
	}{
		"as granted": {[]asked{request("get", "", "nodes", "", 200), request("get", "g", "leases", "kube-system", 200),
			request("get", "g", "leases", "web", 404),
			request("update", "g", "leases", "kube-system", 200)}, nil},
		"refused": {[]asked{request("get", "", "nodes", "", 200), request("get", "g", "leases", "web", 404),
			request("update", "g", "leases", "kube-system", 200),
			request("list", "", "secrets", "", 403)}, []string{"refused: list secrets "}},
		"too wide": {[]asked{request("get", "", "nodes", "", 200), request("get", "g", "leases", "kube-system", 200),
			request("update", "g", "leases", "kube-system", 200)},
			[]string{"granted everywhere, used only in kube-system: get leases.g"}},
		"unused": {[]asked{request("get", "g", "leases", "web", 200),
			request("update", "g", "leases", "kube-system", 200)}, []string{"granted and never used: get nodes"}},
	} {
		if got := checkRights(rights, tc.requests); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
