//go:build linux

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Simulator is the running simulator of the phoenixNAP API.
type Simulator struct {
	// URL is the root of the API.
	URL     string
	process *subprocess.Process
}

// startSimulator runs the simulator with a seed; model time runs scale times faster.
func startSimulator(ctx context.Context, root, dir string, s pnapsim.Seed, scale float64) (*Simulator, error) {
	program, err := tools.Product(ctx, "./test/sim/pnapsim/cmd/pnapsim")
	if err != nil {
		return nil, fmt.Errorf("build the simulator: %w", err)
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the account: %w", err)
	}
	seedFile := filepath.Join(dir, "account.json")
	if err := os.WriteFile(seedFile, raw, 0o600); err != nil {
		return nil, fmt.Errorf("write the account: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "pnapsim.log"))
	if err != nil {
		return nil, fmt.Errorf("log of the simulator: %w", err)
	}
	defer log.Close()
	read, write := io.Pipe()
	// Not CommandContext: the simulator outlives the context of its start and ends with Stop.
	speed := strconv.FormatFloat(scale, 'f', -1, 64)
	cmd := exec.Command(program, "--seed", seedFile, "--scale", speed) //nolint:noctx // see above
	cmd.Dir = root
	cmd.Stdout = write
	cmd.Stderr = log
	process, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start the simulator: %w", err)
	}
	go func() {
		<-process.Done()
		_ = write.Close() // always nil
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !found {
		_ = process.Stop(time.Second)
		return nil, fmt.Errorf("the simulator did not report its address, see %s (%q, %w)", log.Name(), line, err)
	}
	return &Simulator{URL: address, process: process}, nil
}

func (s *Simulator) stop() error { return s.process.Stop(5 * time.Second) }

// AccountState is what the account holds, as the API returns it.
type AccountState struct {
	Blocks   []AccountBlock   `json:"blocks"`
	Networks []AccountNetwork `json:"networks"`
}

// AccountNetwork is one public network of the account.
type AccountNetwork struct {
	ID          string              `json:"id"`
	Memberships []AccountMembership `json:"memberships"`
}

// AccountMembership says which server is a member of a network, with which addresses.
type AccountMembership struct {
	Server string   `json:"resourceId"`
	IPs    []string `json:"ips"`
}

// AccountBlock is one IP block of the account.
type AccountBlock struct {
	ID          string       `json:"id"`
	CIDR        string       `json:"cidr"`
	Status      string       `json:"status"`
	Description string       `json:"description"`
	Tags        []AccountTag `json:"tags"`
}

// AccountTag is a tag on a block.
type AccountTag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// State asks for what the account holds.
func (s *Simulator) State(ctx context.Context) (AccountState, error) {
	var state AccountState
	return state, s.ask(ctx, http.MethodGet, "state", nil, &state)
}

// Violations asks for the rules that were broken; each is a sentence.
func (s *Simulator) Violations(ctx context.Context) ([]json.RawMessage, error) {
	var violations []json.RawMessage
	return violations, s.ask(ctx, http.MethodGet, "violations", nil, &violations)
}

// Money asks for the account's bill.
func (s *Simulator) Money(ctx context.Context) (json.RawMessage, error) {
	var bill json.RawMessage
	return bill, s.ask(ctx, http.MethodGet, "money", nil, &bill)
}

// Edit changes something in the portal.
func (s *Simulator) Edit(ctx context.Context, e pnapsim.Edit) error {
	return s.ask(ctx, http.MethodPost, "out-of-band", e, nil)
}

// ClaimWithdrawn informs the simulator that the Service's address is no longer published.
func (s *Simulator) ClaimWithdrawn(ctx context.Context) error {
	return s.Claim(ctx, pnapsim.Claim{Client: clientID, Kind: pnapsim.ClaimWithdrawn,
		Service: Namespace + "/" + Service})
}

// ClaimPublished informs the simulator that an address of a block has been published for the Service. It checks whether
// that was too early: the block has to be assigned, and a server has to be a member of its network.
func (s *Simulator) ClaimPublished(ctx context.Context, blockID, address string) error {
	return s.Claim(ctx, pnapsim.Claim{
		Client: clientID, Kind: pnapsim.ClaimPublished, Block: blockID, Address: address,
		Service: Namespace + "/" + Service,
	})
}

// Claim informs the simulator what a client believes or did. A false claim is a violation.
func (s *Simulator) Claim(ctx context.Context, claim pnapsim.Claim) error {
	return s.ask(ctx, http.MethodPost, "claims", claim, nil)
}

// ask calls a control path of the simulator.
func (s *Simulator) ask(ctx context.Context, method, path string, in, out any) error {
	body := &bytes.Buffer{}
	if in != nil {
		if err := json.NewEncoder(body).Encode(in); err != nil {
			return fmt.Errorf("encode for /_fake/%s: %w", path, err)
		}
	}
	target := s.URL + "/_fake/" + path + "?account=" + url.QueryEscape(Account)
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return fmt.Errorf("ask /_fake/%s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask /_fake/%s: %w", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask /_fake/%s: %w", path, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("ask /_fake/%s: %s: %s", path, resp.Status, bytes.TrimSpace(raw))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("answer of /_fake/%s: %w", path, err)
	}
	return nil
}
