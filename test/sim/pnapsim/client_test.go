package pnapsim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const tokenPath = "/auth/realms/BMC/protocol/openid-connect/token"

// plain is a small client without the SDK, so that it can misbehave.
type plain struct {
	t     *testing.T
	url   string
	http  *http.Client
	token string
}

// answer is what it got; status is 0 when it got nothing.
type answer struct {
	status int
	body   []byte
}

func newPlain(t *testing.T, url string) *plain {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p := &plain{t: t, url: url, http: &http.Client{Transport: transport, Timeout: time.Minute}}
	p.login()
	return p
}

func (p *plain) login() {
	p.t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {simtest.ClientID},
		"client_secret": {simtest.ClientSecret}}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+tokenPath,
		strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	got := p.send(req)
	var token struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(got.body, &token); err != nil || got.status != http.StatusOK {
		p.t.Fatalf("token: %d %s", got.status, got.body)
	}
	p.token = token.AccessToken
}

func (p *plain) send(req *http.Request) answer {
	resp, err := p.http.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}
	}
	return answer{status: resp.StatusCode, body: body}
}

func (p *plain) do(method, path string, body any) answer {
	p.t.Helper()
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, reader)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return p.send(req)
}

// must is do for a request that has to succeed with the given status.
func (p *plain) must(status int, method, path string, body any) answer {
	p.t.Helper()
	got := p.do(method, path, body)
	if got.status != status {
		p.t.Fatalf("%s %s: %d %s, want %d", method, path, got.status, got.body, status)
	}
	return got
}

type blockAnswer struct {
	ID       string `json:"id"`
	CIDR     string `json:"cidr"`
	Status   string `json:"status"`
	Resource string `json:"assignedResourceId"`
	Kind     string `json:"assignedResourceType"`
	Tags     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"tags"`
}

func decodeAnswer[T any](t *testing.T, got answer) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(got.body, &value); err != nil {
		t.Fatalf("%d %s: %v", got.status, got.body, err)
	}
	return value
}

func (p *plain) block(id string) blockAnswer {
	p.t.Helper()
	return decodeAnswer[blockAnswer](p.t, p.must(http.StatusOK, http.MethodGet, "/ips/v1/ip-blocks/"+id, nil))
}

func (p *plain) blocks() []blockAnswer {
	p.t.Helper()
	return decodeAnswer[[]blockAnswer](p.t, p.must(http.StatusOK, http.MethodGet, "/ips/v1/ip-blocks", nil))
}

func purchase() map[string]any {
	return map[string]any{"location": "ASH", "cidrBlockSize": "/29"}
}

// buy buys a /29 in ASH without tags.
func (p *plain) buy() blockAnswer {
	p.t.Helper()
	return decodeAnswer[blockAnswer](p.t, p.must(http.StatusCreated, http.MethodPost, "/ips/v1/ip-blocks", purchase()))
}

func assignPath() string { return "/networks/v1/public-networks/" + simtest.NetworkID + "/ip-blocks" }

func (p *plain) assign(id string) answer {
	p.t.Helper()
	return p.do(http.MethodPost, assignPath(), map[string]any{"id": id})
}

func (p *plain) unassign(id string) answer {
	p.t.Helper()
	return p.do(http.MethodDelete, assignPath()+"/"+id, nil)
}

func (p *plain) delete(id string) answer {
	p.t.Helper()
	return p.do(http.MethodDelete, "/ips/v1/ip-blocks/"+id, nil)
}

// buyAssigned buys a block and waits until it is assigned.
func (p *plain) buyAssigned(sim *pnapsim.Sim) blockAnswer {
	p.t.Helper()
	b := p.buy()
	sim.Advance(time.Second)
	if got := p.assign(b.ID); got.status != http.StatusAccepted {
		p.t.Fatalf("assign: %d %s", got.status, got.body)
	}
	sim.Advance(30 * time.Second)
	return p.block(b.ID)
}

// third is the address that a Service of a dedicated block gets.
func third(t *testing.T, b blockAnswer) string {
	t.Helper()
	network, _, _ := strings.Cut(b.CIDR, "/")
	parts := strings.Split(network, ".")
	last := map[string]string{"16": "18", "24": "26", "32": "34", "0": "2", "8": "10"}[parts[3]]
	if last == "" {
		t.Fatalf("no third address known of %s", b.CIDR)
	}
	return strings.Join(append(parts[:3], last), ".")
}

func claim(t *testing.T, sim *pnapsim.Sim, c pnapsim.Claim) {
	t.Helper()
	c.Client = simtest.ClientID
	if _, err := sim.Claim(c); err != nil {
		t.Fatal(err)
	}
}

func arm(t *testing.T, sim *pnapsim.Sim, f pnapsim.Fault) {
	t.Helper()
	if err := sim.Arm(f); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, sim *pnapsim.Sim, e pnapsim.Edit) {
	t.Helper()
	if err := sim.OutOfBand(e); err != nil {
		t.Fatal(err)
	}
}

// rules lists the rules that were broken, each once.
func rules(sim *pnapsim.Sim) []string {
	var out []string
	for _, v := range sim.Violations() {
		out = append(out, v.Rule)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
