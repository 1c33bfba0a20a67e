package portability

import "testing"

// TestItCompilesOnOtherSystems: the agent and what needs a Linux kernel are for Linux; all else has to compile
// everywhere, so that `go build ./... && go test ./...` works on the machine of any developer.
func TestItCompilesOnOtherSystems(t *testing.T) {
	for _, system := range []string{"windows", "darwin"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			packages, problems, err := Check(t.Context(), "../../..", system)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s does not compile on %s: %v; code that needs Linux has //go:build linux", p.Package, system,
					p.Err)
			}
			if packages < 60 {
				t.Errorf("only %d packages of the project on %s", packages, system)
			}
		})
	}
}
