package pnapsim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "copy the OpenAPI documents of the SDK modules again")

// TestDocumentsAreTheSDKs: the documents that the program carries are those of the modules that go.mod names.
func TestDocumentsAreTheSDKs(t *testing.T) {
	for _, a := range apis() {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", a.module).Output()
		if err != nil {
			t.Fatalf("find module %s: %v", a.module, err)
		}
		want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "api", "openapi.yaml"))
		if err != nil {
			t.Fatalf("module %s: %v", a.module, err)
		}
		name := filepath.Join("openapi", a.name+".yaml")
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not that of %s (%v): see what has changed, and run go test ./test/sim/pnapsim "+
				"-run %s -update", name, a.module, err, t.Name())
		}
	}
}

// TestLocationsAreTheDocuments: clients decode the location into an enumeration and reject a list with any other.
func TestLocationsAreTheDocuments(t *testing.T) {
	schema := specs(t).documents[locationAPI.name].Components.Schemas["ProductLocationEnum"]
	if schema == nil {
		t.Fatal("the document has no schema ProductLocationEnum")
	}
	var want []string
	for _, value := range schema.Value.Enum {
		want = append(want, fmt.Sprint(value))
	}
	slices.Sort(want)
	if have := slices.Sorted(slices.Values(locations())); !slices.Equal(have, want) {
		t.Errorf("the simulator has the locations %v, the document %v", have, want)
	}
}
