package main

import (
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

// grant is one thing that a role lets its holder do.
type grant struct {
	namespace string // of a Role; empty for a ClusterRole
	verb      string
	group     string
	resource  string
	names     string // joined by commas; empty for all
}

func (g grant) String() string {
	text := g.verb + " " + g.resource
	if g.group != "" {
		text += "." + g.group
	}
	if g.names != "" {
		text += " " + g.names
	}
	if g.namespace != "" {
		text += " in " + g.namespace
	}
	return text
}

// covers reports whether the grant is what allows a request.
func (g grant) covers(a asked) bool {
	return g.verb == a.Verb && g.group == a.ObjectRef.APIGroup && g.resource == a.resource() &&
		(g.namespace == "" || g.namespace == a.ObjectRef.Namespace) &&
		(g.names == "" || slices.Contains(strings.Split(g.names, ","), a.ObjectRef.Name))
}

// grants reads the roles of a manifest.
func grants(t *testing.T, path string) []grant {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []grant
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var role rbacv1.Role // a ClusterRole has the same fields
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			all = append(all, grantsOf(role.Namespace, rule)...)
		}
	}
	return all
}

func grantsOf(namespace string, rule rbacv1.PolicyRule) []grant {
	var all []grant
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, grant{namespace: namespace, verb: verb, group: group, resource: resource,
					names: strings.Join(rule.ResourceNames, ",")})
			}
		}
	}
	return all
}

// needed returns which grants the requests needed. A right in the whole cluster counts only where none in the namespace
// would have done.
func needed(all []grant, requests []asked) map[grant]bool {
	used := map[grant]bool{}
	for _, request := range requests {
		var narrow, wide []grant
		for _, g := range all {
			switch {
			case !g.covers(request):
			case g.namespace != "":
				narrow = append(narrow, g)
			default:
				wide = append(wide, g)
			}
		}
		if len(narrow) == 0 {
			narrow = wide
		}
		for _, g := range narrow {
			used[g] = true
		}
	}
	return used
}

// checkGrants holds what was asked for against the shipped roles: nothing was refused, and nothing is granted that is
// not used, but for what is rare, each with its reason.
func checkGrants(t *testing.T, requests []asked, rare map[string]string) {
	t.Helper()
	for _, request := range requests {
		if request.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("refused: %s", request)
		}
	}
	all := grants(t, filepath.Join("..", "deploy", "base", "controller.yaml"))
	used := needed(all, requests)
	left := maps.Clone(rare)
	for _, g := range all {
		_, excused := rare[g.String()]
		delete(left, g.String())
		if !used[g] && !excused {
			t.Errorf("granted and never used: %s", g)
		}
	}
	for name := range left {
		t.Errorf("excused, but not granted: %s", name)
	}
}

func TestUnusedGrantsAreFound(t *testing.T) {
	all := []grant{
		{verb: "list", resource: "things"}, {verb: "list", resource: "things", namespace: "a"},
		{verb: "get", resource: "things/status", names: "x,y", namespace: "a"},
		{verb: "get", resource: "things", group: "g"},
	}
	request := func(verb, resource, subresource, namespace, name string) asked {
		a := asked{Verb: verb}
		a.ObjectRef.Resource = resource
		a.ObjectRef.Subresource = subresource
		a.ObjectRef.Namespace = namespace
		a.ObjectRef.Name = name
		return a
	}
	for name, tc := range map[string]struct {
		request asked
		want    string
	}{
		"the narrow one does":   {request("list", "things", "", "a", ""), "[list things in a]"},
		"elsewhere":             {request("list", "things", "", "b", ""), "[list things]"},
		"by name":               {request("get", "things", "status", "a", "y"), "[get things/status x,y in a]"},
		"another name":          {request("get", "things", "status", "a", "z"), "[]"},
		"another group":         {request("get", "things", "", "", ""), "[]"},
		"another verb":          {request("delete", "things", "", "a", ""), "[]"},
		"without a subresource": {request("get", "things", "", "a", "y"), "[]"},
	} {
		got := slices.Collect(maps.Keys(needed(all, []asked{tc.request})))
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}
