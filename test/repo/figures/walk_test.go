package figures

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// theCore is a module with a way through three packages.
var theCore = map[string]string{
	"go.mod": "module " + strings.TrimSuffix(module, "/") + "\n\ngo 1.24\n\nrequire k8s.io/api v0.0.0\n\n" +
		"replace k8s.io/api => ./k8s\n",
	"k8s/go.mod":             "module k8s.io/api\n\ngo 1.24\n",
	"k8s/core/v1/service.go": "package v1\n\ntype Service struct{ Name string }\n",
	"core/core.go": `package core

import (
	corev1 "k8s.io/api/core/v1"

	"` + module + `fields"
	"` + module + `ledger"
)

type Core struct{ store store }

var _ store = ledger.Ledger{}

type store interface{ Keep(s *corev1.Service) }

func (c *Core) Ensure(s *corev1.Service) {
	fields.Read(s)
	fields.Read(s)
	fields.OfName(s.Name)
	c.store.Keep(s)
	decide(fields.Holder{Service: s})
}

func decide(h fields.Holder) { h.Clear() }
`,
	"fields/fields.go": `package fields

import corev1 "k8s.io/api/core/v1"

type Holder struct{ Service *corev1.Service }

func Read(s *corev1.Service) {}

func OfName(name string) {}

func (h Holder) Clear() {}
`,
	"ledger/ledger.go": `package ledger

import corev1 "k8s.io/api/core/v1"

type Ledger struct{}

func (Ledger) Keep(s *corev1.Service) {}
`,
}

// TestWalk: what gets the Service is entered once, also behind an interface, and what gets a name only is not.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	for name, text := range theCore {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := loadWalk(dir, "./...")
	if err == nil {
		err = w.from("core", "Core", "Ensure")
	}
	if err != nil {
		t.Fatal(err)
	}
	var stays []string
	for _, stay := range w.stays {
		stays = append(stays, strings.TrimPrefix(stay, module))
	}
	want := []string{"core", "fields", "core", "ledger", "core", "fields", "core"}
	if !slices.Equal(stays, want) || len(w.read) != 5 {
		t.Errorf("%d functions in %v, want 5 in %v", len(w.read), stays, want)
	}
	if err := w.from("core", "Core", "Release"); err == nil {
		t.Error("a method that does not exist is walked from")
	}
}

// maxStays is how often a reader of the core changes the package on the way of a Service to its address.
const maxStays = 27

// TestTheWayOfAService: the core stays as easy to enter as it is.
func TestTheWayOfAService(t *testing.T) {
	w, err := loadWalk(root, "./controller/...", "./pkg/...")
	if err == nil {
		err = w.from("controller/loadbalancer/reconcile", "Balancer", "Ensure")
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(w.stays) > maxStays {
		t.Errorf("%d stays, at most %d are right: %v", len(w.stays), maxStays, w.stays)
	}
	if !slices.Contains(w.stays, module+"controller/loadbalancer/plan") {
		t.Errorf("the decision is not on the way: %v", w.stays)
	}
}
