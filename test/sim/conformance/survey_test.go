package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	full    = "60473c2509268bc77fd06dff"
	visitor = "5fa54d1e91867c03a0a7b4ff"
)

// world is a simulated account in which a survey can find everything out: a server that may be joined, and a network
// that is full.
type world struct {
	*testing.T
	sim     *pnapsim.Sim
	clock   *pnapsim.Clock
	url     string
	account *Account
}

func newWorld(t *testing.T, switches pnapsim.Switches, change ...func(*pnapsim.AccountSeed)) *world {
	t.Helper()
	clock := pnapsim.NewManualClock(simtest.Start())
	seed := simtest.Account()
	seed.Clients[0].Judged = false
	seed.Networks = append(seed.Networks, pnapsim.NetworkSeed{ID: full, Name: "full", Location: "ASH", VLAN: 30})
	for i := range 10 {
		seed.Blocks = append(seed.Blocks, pnapsim.BlockSeed{Location: "ASH",
			CIDR: fmt.Sprintf("203.0.113.%d/29", 128+8*i), Network: full})
	}
	seed.Servers = append(seed.Servers, pnapsim.ServerSeed{ID: visitor, Hostname: "visitor", Location: "ASH",
		NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.99"}})
	for _, each := range change {
		each(&seed)
	}
	sim, url := simtest.Unjudged(t, pnapsim.Config{Clock: clock, Switches: switches},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{seed}})
	return &world{T: t, sim: sim, clock: clock, url: url, account: &Account{
		BaseURL: url, TokenURL: url + "/auth/realms/BMC/protocol/openid-connect/token", ClientID: simtest.ClientID,
		ClientSecret: simtest.ClientSecret,
	}}
}

// survey is one that may do everything; its time is the simulator's.
func (w *world) survey(change ...func(*Options)) *Survey {
	options := Options{
		Location: "ASH", Server: visitor, FullNetwork: full, Confirm: func(string) bool { return true }, Say: w.Logf,
		Wait: func(ctx context.Context, d time.Duration) error {
			w.clock.Advance(d)
			return ctx.Err()
		},
	}
	for _, each := range change {
		each(&options)
	}
	return New(w.account, options)
}

// inventory is what the account has.
func (w *world) inventory() string {
	w.Helper()
	var all []string
	for _, path := range []string{blocksPath, networksPath, tagsPath} {
		got := w.account.get(w.Context(), path)
		if got.err != nil {
			w.Fatal(got.err)
		}
		for _, each := range got.list() {
			all = append(all, text(each, "id")+" "+text(each, "status")+" "+text(each, "assignedResourceId"))
		}
	}
	server := w.account.get(w.Context(), serversPath+"/"+visitor)
	if server.err != nil || inServer(server.object(), full) {
		w.Fatal(server.err)
	}
	return strings.Join(all, "\n")
}

// covering are settings of all switches among which every value of every switch occurs.
func covering(t *testing.T) []map[string]string {
	t.Helper()
	most := 0
	for _, name := range pnapsim.SwitchNames() {
		most = max(most, len(pnapsim.SwitchValues(name)))
	}
	settings := make([]map[string]string, most)
	for i := range settings {
		settings[i] = map[string]string{}
		for _, name := range pnapsim.SwitchNames() {
			values := pnapsim.SwitchValues(name)
			settings[i][name] = values[i%len(values)]
		}
	}
	if most < 3 {
		t.Fatalf("only %d settings", most)
	}
	return settings
}

func switchesOf(t *testing.T, setting map[string]string) pnapsim.Switches {
	t.Helper()
	var findings []Finding
	for name, value := range setting {
		findings = append(findings, Finding{Switch: name, Value: value})
	}
	switches, err := Switches(findings)
	if err != nil {
		t.Fatal(err)
	}
	return switches
}

// Whatever the service does, the survey finds it out, and leaves the account as it was.
func TestASurveyFindsWhatIsSet(t *testing.T) {
	unanswerable := map[string]bool{"deleteErrorState": true, "quotaCode": true}
	for i, setting := range covering(t) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newWorld(t, switchesOf(t, setting))
			before := w.inventory()
			s := w.survey()
			if err := s.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Buy(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, f := range s.Findings() {
				if want := setting[f.Switch]; f.Value != want && !unanswerable[f.Switch] {
					t.Errorf("%s is %q, found %q: %s", f.Switch, want, f.Value, f.Why)
				}
			}
			if after := w.inventory(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if found, err := Switches(s.Findings()); err != nil || found == (pnapsim.Switches{}) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// Without the permission to buy, nothing is changed, and what can be read is found out all the same.
func TestReadingChangesNothing(t *testing.T) {
	for i, setting := range covering(t) {
		w := newWorld(t, switchesOf(t, setting),
			func(a *pnapsim.AccountSeed) { a.Blocks[0].Tags = map[string]string{"team": "shop"} })
		s := w.survey(func(o *Options) { o.Confirm = nil })
		if err := s.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Findings() {
			switch f.Switch {
			case "tokenRefusal", "scopes", "missing", "extraFields", "assignedType", "tagFilter":
				if f.Value != setting[f.Switch] {
					t.Errorf("setting %d: %s is %q, found %q", i, f.Switch, setting[f.Switch], f.Value)
				}
			default:
				if f.Value != "" || f.Why == "" {
					t.Errorf("setting %d: %s cannot be read, found %q: %q", i, f.Switch, f.Value, f.Why)
				}
			}
		}
		for _, entry := range w.sim.Log(0) {
			if entry.Method != http.MethodGet && !strings.Contains(entry.Path, "/token") {
				t.Errorf("%s %s", entry.Method, entry.Path)
			}
		}
	}
}

// Who declines buys nothing. The offer names the price where the Billing API returns it.
func TestAPurchaseIsConfirmed(t *testing.T) {
	w := newWorld(t, pnapsim.Switches{})
	before := w.inventory()
	billing := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/billing/") {
			_, _ = fmt.Fprint(out,
				`[{"productCode":"ip-31","plans":[{"location":"ASH","pricingModel":"HOURLY","price":0.006,"priceUnit":"HOUR"},{"location":"PHX","pricingModel":"HOURLY","price":9}]}]`)
			return
		}
		w.sim.Handler().ServeHTTP(out, r)
	}))
	t.Cleanup(billing.Close)
	for base, want := range map[string]string{w.url: "does not report the price",
		billing.URL: "ip-31: 0.006 per hour"} {
		w.account.BaseURL = base
		var offer string
		err := w.survey(func(o *Options) {
			o.Confirm = func(text string) bool {
				offer = text
				return false
			}
		}).Buy(t.Context())
		if !errors.Is(err, ErrDeclined) || !strings.Contains(offer, want) || !strings.Contains(offer, "/31 in ASH") ||
			strings.Contains(offer, "9") && base == billing.URL {
			t.Errorf("%v, %q, want %q", err, offer, want)
		}
	}
	if after := w.inventory(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// A survey that ends in the middle, at whichever request, leaves nothing; one that is killed leaves what the next one
// finds.
func TestASurveyThatEndsGivesEverythingBack(t *testing.T) {
	for _, limit := range []int{1, 4, 9, 14, 20, 26, 32} {
		w := newWorld(t, pnapsim.Switches{})
		before := w.inventory()
		ctx, cancel := context.WithCancel(t.Context())
		waits := 0
		s := w.survey(func(o *Options) {
			o.Wait = func(ctx context.Context, d time.Duration) error {
				w.clock.Advance(d)
				if waits++; waits == limit {
					cancel()
				}
				return ctx.Err()
			}
		})
		if err := s.Buy(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("ended at wait %d: %v", limit, err)
		}
		if after := w.inventory(); after != before {
			t.Errorf("ended at wait %d: before:\n%s\nafter:\n%s", limit, before, after)
		}
	}
	w := newWorld(t, pnapsim.Switches{})
	before := w.inventory()
	killed := w.survey()
	for _, step := range []func(context.Context) error{killed.makeTag, killed.buyBlock, killed.makeNetwork,
		killed.assign, killed.join} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.survey().CleanUp(t.Context()); err != nil {
		t.Error(err)
	}
	if after := w.inventory(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// An account that may have no more blocks answers what the quota's code is, and buys nothing.
func TestAFullAccountReturnsTheCodeOfTheQuota(t *testing.T) {
	for _, code := range pnapsim.SwitchValues("quotaCode") {
		w := newWorld(t, switchesOf(t, map[string]string{"quotaCode": code}),
			func(a *pnapsim.AccountSeed) { a.MaxBlocks = len(a.Blocks) })
		before := w.inventory()
		s := w.survey()
		if err := s.Buy(t.Context()); !errors.Is(err, errRefused) {
			t.Errorf("%v", err)
		}
		for _, f := range s.Findings() {
			if f.Switch == "quotaCode" && f.Value != code {
				t.Errorf("the code is %s, found %q: %s", code, f.Value, f.Why)
			}
		}
		if after := w.inventory(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	}
}

func TestTheReportSaysWhatIsConfirmed(t *testing.T) {
	var out bytes.Buffer
	findings := []Finding{{Switch: "missing", Value: "404", Why: "seen"}, {Switch: "busy", Value: "409", Why: "seen"},
		{Switch: "overLimit", Why: "needs more"}}
	if err := Write(&out, findings); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DIFFERENT  missing", "confirmed  busy", "not known  overLimit", `"missing":404`,
		`"busy":"409"`, "figure conformance_switches_answered 2 switches"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := Write(&out, []Finding{{Switch: "missing", Value: "418"}}); err != nil ||
		!strings.Contains(out.String(), "the simulator cannot do that yet: switch missing: 418") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Wrong credentials are an error at once.
func TestWrongCredentialsAreReported(t *testing.T) {
	w := newWorld(t, pnapsim.Switches{})
	w.account.ClientSecret = "wrong"
	if err := w.survey().Read(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "check clientID and clientSecret") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v", err)
	}
}

// The guide explains every switch.
func TestTheGuideKnowsEverySwitch(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pnapsim.SwitchNames() {
		if !strings.Contains(string(guide), "\n| `"+name+"` | ") {
			t.Errorf("docs/guides/conformance.md does not mention %s", name)
		}
	}
}
