package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// constantsOf returns the names with the project's prefix that a block of constants in names.go declares.
func constantsOf(t *testing.T, comment string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(block.Doc.Text(), comment) {
			continue
		}
		ast.Inspect(block, func(n ast.Node) bool {
			sum, ok := n.(*ast.BinaryExpr)
			if !ok {
				return true
			}
			name, ok := sum.Y.(*ast.BasicLit)
			if !ok {
				return true
			}
			value, err := strconv.Unquote(name.Value)
			if err != nil {
				t.Error(err)
			}
			found = append(found, Prefix+value)
			return true
		})
	}
	return found
}

// TestOwnedFieldsAreComplete compares the lists with the constants that have the same purpose in their comments: an
// annotation that only one of them contains would stay on Services forever.
func TestOwnedFieldsAreComplete(t *testing.T) {
	for comment, owned := range map[string][]string{
		"Service annotations that the controller writes": OwnedServiceAnnotations(),
		"Types of the Service conditions":                OwnedServiceConditions(),
	} {
		if diff := cmp.Diff(constantsOf(t, comment), owned); diff != "" {
			t.Errorf("%s: (-declared +owned):\n%s", comment, diff)
		}
	}
}

func TestServed(t *testing.T) {
	class := func(name string) *string { return &name }
	for name, tc := range map[string]struct {
		spec        corev1.ServiceSpec
		served, own bool
	}{
		"without a class": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, true, false},
		"our class": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			LoadBalancerClass: class(LoadBalancerClass)}, true, true},
		"another class": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			LoadBalancerClass: class("example.com/x")}, false, false},
		"another type": {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}, false, false},
		"no type":      {corev1.ServiceSpec{}, false, false},
	} {
		if got := Served(&tc.spec); got != tc.served {
			t.Errorf("%s: served %v", name, got)
		}
		if got := HasOwnClass(&tc.spec); got != tc.own {
			t.Errorf("%s: own class %v", name, got)
		}
	}
}

func TestHasOwnedFields(t *testing.T) {
	if HasOwnedFields(&corev1.Service{}) {
		t.Error("an empty Service has owned fields")
	}
	for _, name := range slices.Concat(OwnedServiceAnnotations(), []string{ServiceIPLocation, KubeVIPAddresses}) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name: "x"}}}
		if got := HasOwnedFields(service); got != slices.Contains(OwnedServiceAnnotations(), name) {
			t.Errorf("annotation %s: %v", name, got)
		}
	}
	for _, name := range append(OwnedServiceConditions(), "example.com/Ready") {
		service := &corev1.Service{Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: name}}}}
		if got := HasOwnedFields(service); got != slices.Contains(OwnedServiceConditions(), name) {
			t.Errorf("condition %s: %v", name, got)
		}
	}
}

func TestWrittenForThis(t *testing.T) {
	for _, tc := range []struct {
		uid, owner string
		want       bool
	}{{"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"", "", false}} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(tc.uid), Annotations: map[string]string{ServiceIPOwner: tc.owner},
		}}
		if got := WrittenForThis(service); got != tc.want {
			t.Errorf("UID %q, owner %q: %v", tc.uid, tc.owner, got)
		}
	}
}
