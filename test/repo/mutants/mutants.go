// Package mutants changes one decision of the controller or the agent at a time and runs the tests that have to fail.
//
// Some mutations are kept in a list, because they would cost money, addresses or Nodes; others are generated from the
// syntax. A mutation that no test detects is a survivor, and needs a reason in the list of survivors.
package mutants

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Mutation is a change of a file: a text that occurs in it once, and what replaces it.
type Mutation struct {
	// File is the path below the root of the repository.
	File string `json:"file"`
	// Old is the text to replace, New the replacement. Both may have several lines.
	Old string `json:"old"`
	New string `json:"new"`
	// Why is what would go wrong; for a survivor, why no test can detect it.
	Why string `json:"why"`
	// Tests are what has to fail, as in a target; empty means those of the target.
	Tests []string `json:"tests,omitempty"`
	// Test is the test that detects it, which saves the time of the others; empty if that is not known.
	Test string `json:"test,omitempty"`

	// at is where Old begins; negative for its only occurrence.
	at int
}

// String writes a mutation so that editors can jump to the file.
func (m Mutation) String() string {
	return fmt.Sprintf("%s: %q -> %q", m.File, oneLine(m.Old), oneLine(m.New))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// key identifies a mutation independently of its position.
func (m Mutation) key() string { return m.File + "\n" + oneLine(m.Old) + "\n" + oneLine(m.New) }

// target is a package for which mutations are generated, and the tests that have to detect them: packages, each
// optionally with a regular expression for the names. The later ones run only if the earlier ones pass.
type target struct {
	pkg   string
	tests []string
	// share is how many times as many mutations are tried as of others; 0 means as many.
	share int
}

// onKernel are the agent's tests on a kernel with 802.1Q.
const onKernel = "test/scenario/agent"

// agentShare makes a hundred mutations of the agent that are valid out of five for each other package.
const agentShare = 4

var targets = []target{
	{pkg: "controller/loadbalancer/plan",
		tests: []string{"controller/loadbalancer/plan", "controller/loadbalancer/reconcile"}},
	{pkg: "controller/loadbalancer/purchase", tests: []string{"controller/loadbalancer/purchase"}},
	{pkg: "controller/cloud/pnap", tests: []string{"controller/cloud/pnap"}},
	{pkg: "controller/loadbalancer/orphans", tests: []string{"controller/loadbalancer/orphans"}},
	{pkg: "controller/node/instances", tests: []string{"controller/node/instances"}},
	{pkg: "controller/node/membership", tests: []string{"controller/node/membership"}},
	{pkg: "controller/loadbalancer/service", tests: []string{"controller/loadbalancer/service"}},
	{"agent/wire/responder", []string{"agent/wire/responder", onKernel + " ^TestResponder$"}, agentShare},
	{"agent/wire/arp", []string{"agent/wire/arp", onKernel + " ^TestListener$"}, agentShare},
	{"agent/configure/ownership", []string{"agent/configure/ownership",
		onKernel + " ^Test(Adopted|BareServerIsConfigured|ReturnPathReconciler)$"}, agentShare},
	{"agent/configure/returnpath", []string{"agent/configure/returnpath",
		onKernel + " ^TestReturnPath(MarkClash|FollowsBlocks|Reconciler)$"}, agentShare},
	{"agent/configure/vlan", []string{"agent/configure/vlan",
		onKernel + " ^Test(Adopted|Orders|BareServerIsConfigured)$"}, agentShare},
	{"agent/verify/check", []string{"agent/verify/check"}, agentShare},
	{"agent/verify/vip", []string{"agent/verify/vip"}, agentShare},
}

// testsOf returns what has to detect a mutation.
func testsOf(m Mutation) []string {
	if len(m.Tests) > 0 {
		return m.Tests
	}
	pkg := path.Dir(m.File)
	for _, t := range targets {
		if t.pkg == pkg {
			return t.tests
		}
	}
	return []string{pkg}
}

//go:embed kept.yaml
var keptText []byte

//go:embed survivors.yaml
var survivorsText []byte

// Kept returns the mutations of the list.
func Kept() ([]Mutation, error) { return read("kept.yaml", keptText) }

// Survivors returns the mutations that no test can detect, with the reasons.
func Survivors() ([]Mutation, error) { return read("survivors.yaml", survivorsText) }

func read(name string, text []byte) ([]Mutation, error) {
	var list []Mutation
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	for i := range list {
		list[i].at = -1
	}
	return list, nil
}

// Apply returns the changed text of the file below root.
func (m Mutation) Apply(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("mutate: %w", err)
	}
	text := string(raw)
	at := m.at
	if at < 0 {
		if count := strings.Count(text, m.Old); count != 1 {
			return "", fmt.Errorf("the text occurs %d times, want once: %s", count, m)
		}
		at = strings.Index(text, m.Old)
	}
	return text[:at] + m.New + text[at+len(m.Old):], nil
}
