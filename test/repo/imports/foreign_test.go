package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreign are the names of announcers that others make.
var foreign = regexp.MustCompile(`(?i)kube-?vip|metallb`)

// placesOfForeign are where code may name them, with the reason: files, and folders with all that is below.
var placesOfForeign = map[string]string{
	"pkg/contract":                                   "names and rules that both processes agree on",
	"pkg/api/v1beta1/publicnetwork.go":               "the kinds of announcers that an object can name",
	"controller/loadbalancer/announcer/kubevip":      "the announcer itself",
	"controller/loadbalancer/announcer/announcer.go": "the only choice between announcers",
	"agent/verify/announcer/kubevip":                 "what the agent knows of the announcer",
	"agent/verify/announcer/kinds":                   "the agent's only choice between announcers",
	"agent/verify/announcer/announcer.go":            "the announcer where the controller names none",
	"agent/verify/vip/catalogue.go":                  "the pages of the findings name what users run",
	"agent/verify/vip/subject.go":                    "addresses that its annotation names on a Service",
	"agent/verify/check/link.go":                     "a remedy names what is to be restarted",
	"agent/report/nodewatch":                         "annotations that are kept of a Service",
	"agent/kubevip.go":                               "the options of the announcer",
	"agent/run.go":                                   "package main wires",
	"agent/diagnose.go":                              "package main wires",
	"agent/diagnose/examine/examination.go":          "diagnose reads the Leases without an agent",
}

// TestForeignAnnouncersHaveOnePlace: what only one announcer needs is in its package, so that another one can be added.
func TestForeignAnnouncersHaveOnePlace(t *testing.T) {
	used := map[string]bool{}
	for _, top := range []string{"controller", "agent", "pkg"} {
		err := filepath.WalkDir(filepath.Join("../../..", top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			path := strings.TrimPrefix(filepath.ToSlash(name), "../../../")
			place := placeOfForeign(path)
			used[place] = used[place] || len(foreignNames(t, source)) > 0
			if place != "" {
				return nil
			}
			for _, found := range foreignNames(t, source) {
				t.Errorf("%s names an announcer: %s; that belongs in its package", path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for place := range placesOfForeign {
		if !used[place] {
			t.Errorf("%s names no announcer; take it off the list", place)
		}
	}
}

// TestForeignNamesAreFound: names and texts count, comments do not.
func TestForeignNamesAreFound(t *testing.T) {
	found := foreignNames(t, []byte(`package p

// kube-vip reads it.
const kubeVIPHost = "host"

func f() string { return g(contract.KubeVIPAddresses, "a kube-vip pod", "metallb.io/x") }
`))
	want := []string{"kubeVIPHost", "KubeVIPAddresses", `"a kube-vip pod"`, `"metallb.io/x"`}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

// placeOfForeign is the place that a file is in; empty for none.
func placeOfForeign(path string) string {
	for place := range placesOfForeign {
		if path == place || strings.HasPrefix(path, place+"/") {
			return place
		}
	}
	return ""
}

// foreignNames are the identifiers and texts of a file that name an announcer.
func foreignNames(t *testing.T, source []byte) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if foreign.MatchString(n.Name) {
				found = append(found, n.Name)
			}
		case *ast.BasicLit:
			if foreign.MatchString(n.Value) {
				found = append(found, n.Value)
			}
		}
		return true
	})
	return found
}
