package figures

import (
	"bytes"
	"slices"
	"testing"
)

func TestSeams(t *testing.T) {
	const code = `package p

import "contract"

// NetworkID is in a comment, and NodePublicNetworkID another word.
func f(kind string, o Options) bool {
	switch kind {
	case contract.AnnouncerKubeVIP, contract.AnnouncerAgent:
		return o.NetworkID != "" && o.NetworkID != kind
	case contract.AnnouncerView:
		return AnnouncerNone == kind
	}
	o.Kind = contract.AnnouncerAgent
	return kind == contract.AnnouncerNone || contract.AnnouncerAgent != kind
}
`
	files := []file{{"agent/p.go", []byte(code)}, {"agent/verify/announcer/kinds/p.go", []byte(code)},
		{"agent/announce/speaker/p.go", []byte(code)}, {"controller/loadbalancer/announcer/p.go", []byte(code)}}
	comparisons, err := announcerComparisons(files)
	if err != nil || comparisons != 3 {
		t.Errorf("%d comparisons (%v), want 3", comparisons, err)
	}
	if got := networkIDLines(files); got != 2*len(files) {
		t.Errorf("%d lines, want %d", got, 2*len(files))
	}
}

// TestAnnouncerKindsExist: the constants that are looked for are declared.
func TestAnnouncerKindsExist(t *testing.T) {
	files, err := goFiles(root, "pkg/contract")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range announcerKinds {
		if !slices.ContainsFunc(files, func(f file) bool { return bytes.Contains(f.source, []byte("\t"+name+" ")) }) {
			t.Errorf("package contract does not declare %s", name)
		}
	}
}
