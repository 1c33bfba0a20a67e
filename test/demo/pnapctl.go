//go:build linux

package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The credentials with which the account's owner looks. The controller has others, by which it is judged.
const (
	ownerID     = "owner"
	ownerSecret = "a-secret-of-the-owner"
)

// checkPNAPCTL reports whether pnapctl can be run, before anything is built.
func (o Options) checkPNAPCTL() error {
	if o.PNAPCTL == "" {
		return nil
	}
	if _, err := exec.LookPath(o.PNAPCTL); err != nil {
		return fmt.Errorf("PNAPCTL has to be the path of phoenixNAP's pnapctl: %w", err)
	}
	return nil
}

// addOwner gives the account's owner credentials, where pnapctl needs them.
func (o Options) addOwner(a *pnapsim.AccountSeed) {
	if o.PNAPCTL != "" {
		a.Clients = append(a.Clients, pnapsim.ClientSeed{ID: ownerID, Secret: ownerSecret})
	}
}

// look is an act in which the owner looks at the account with pnapctl; none without that program.
func (s *story) look(title string) []act {
	if s.options.PNAPCTL == "" {
		return nil
	}
	return []act{{title, s.showAccount}}
}

// showAccount shows what pnapctl says about blocks and networks.
func (s *story) showAccount(ctx context.Context) error {
	config := filepath.Join(s.options.Dir, "pnapctl.yaml")
	text := fmt.Appendf(nil, `clientId: %q
clientSecret: %q
tokenURL: "%[3]s/auth/realms/BMC/protocol/openid-connect/token"
ipHostname: "%[3]s/ips/v1"
networksHostname: "%[3]s/networks/v1"
`, ownerID, ownerSecret, s.Sim.URL)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return fmt.Errorf("configuration of pnapctl: %w", err)
	}
	for _, what := range []string{"ip-blocks", "public-networks"} {
		s.say("pnapctl get %s", what)
		out, err := exec.CommandContext(ctx, s.options.PNAPCTL, "get", what, "--config", config).CombinedOutput()
		s.quote(string(out))
		if err != nil {
			return fmt.Errorf("pnapctl get %s: %w", what, err)
		}
	}
	return nil
}
