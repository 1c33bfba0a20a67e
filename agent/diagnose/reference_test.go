package diagnose

import (
	"os"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// TestEveryFindingIsDocumented: each finding names a place in the reference, which must be there.
func TestEveryFindingIsDocumented(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	ids := []check.ID{announcement.AddressAnswers, announcement.SingleAnswer, announcement.RightInterface, announcement.ReturnByNetwork}
	for _, c := range check.Catalogue() {
		ids = append(ids, c.ID)
	}
	for _, id := range ids {
		if !strings.Contains(string(reference), "\n## "+string(id)+"\n") {
			t.Errorf("docs/reference/findings.md has no section %s", id)
		}
	}
}
