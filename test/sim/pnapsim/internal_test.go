package pnapsim

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func specs(tb testing.TB) *Specs {
	tb.Helper()
	loaded, err := LoadSpecs("")
	if err != nil {
		tb.Fatal(err)
	}
	return loaded
}

// TestOperationsAreInDocuments: the simulator serves nothing that the documents do not know, and they
// know how each of its operations answers.
//
//proves:known-bugs/kind-simulator
func TestOperationsAreInDocuments(t *testing.T) {
	documents := specs(t)
	for _, op := range operations() {
		_, _, spec := documents.operation(&op)
		if spec == nil {
			t.Errorf("%s is not in the document", op.name())
			continue
		}
		if faults := documents.checkResponse(&op, http.StatusForbidden, map[string]any{}); len(faults) == 0 &&
			spec.Responses.Status(http.StatusForbidden) != nil {
			t.Errorf("%s: an error without a message passes", op.name())
		}
	}
}

// TestResponsesAreChecked: a fault of the simulator itself would be seen.
//
//proves:known-bugs/kind-simulator
func TestResponsesAreChecked(t *testing.T) {
	documents := specs(t)
	op, _, _ := route(http.MethodGet, "/networks/v1/public-networks")
	s := New(Config{Specs: documents})
	leave := s.enter()
	s.encode(&delivery{reply: reply{status: http.StatusOK, body: []any{object{"id": "1"}}}}, op)
	leave()
	if found := s.Violations(); len(found) == 0 || found[0].Rule != "openapi-response" {
		t.Errorf("violations %v", found)
	}
}

// TestWrongAnswersAreSeen: the tests with the SDK would see an answer that the documents do not know.
func TestWrongAnswersAreSeen(t *testing.T) {
	documents := specs(t)
	request := httptest.NewRequest(http.MethodDelete, "/tag-manager/v1/tags/1", nil)
	for name, c := range map[string]struct {
		status int
		body   string
		want   int
	}{
		"right":            {http.StatusOK, `{"result": "gone", "tagId": "1"}`, 0},
		"missing property": {http.StatusOK, `{"result": "gone"}`, 1},
		"unknown property": {http.StatusOK, `{"result": "gone", "tagId": "1", "by": "us"}`, 1},
		"unknown status":   {http.StatusTeapot, `{"message": "no"}`, 1},
		"no JSON":          {http.StatusOK, `gone`, 1},
	} {
		operation, faults := documents.WrongAnswer(request, c.status, []byte(c.body))
		if len(faults) != c.want || operation != "tagsTagIdDelete" {
			t.Errorf("%s: %s, faults %q, want %d", name, operation, faults, c.want)
		}
	}
}

func TestLoadSpecsSaysWhatIsWrong(t *testing.T) {
	if _, err := LoadSpecs(t.TempDir()); err == nil || !strings.Contains(err.Error(), "bmcapi.yaml") {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		expr string
		yes  []string
		no   []string
	}{
		{`^(?=.*[a-zA-Z])([a-zA-Z0-9().-])+$`, []string{"a", "1.a", "node-1.example"},
			[]string{"", "1", "1.2", "a b", "a_b"}},
		{`^(?=.*[a-zA-Z])([a-zA-Z0-9(). -])+$`, []string{"a", "my net (1)"}, []string{"", "1 2", "a_b", "a\n"}},
		{`^(?!\s*$).+`, []string{"a", " a"}, []string{"", "  "}},
		{`^(?s)(?!\s*$).+`, []string{"a\nb"}, []string{"", "\n \n"}},
		{`^(?!-)[\w\-]{1,63}(?<!-)(\.(?!-)[\w\-]{1,63}(?<!-))*$`, []string{"a", "a-b.c", strings.Repeat("a", 63)},
			[]string{"", "-a", "a-", "a..b", strings.Repeat("a", 64)}},
		{`^\S+$`, []string{"a"}, []string{"a b"}},
	} {
		matcher, err := compilePattern(tt.expr)
		if err != nil {
			t.Errorf("%s: %v", tt.expr, err)
			continue
		}
		for _, text := range tt.yes {
			if !matcher.MatchString(text) {
				t.Errorf("%s does not match %q", tt.expr, text)
			}
		}
		for _, text := range tt.no {
			if matcher.MatchString(text) {
				t.Errorf("%s matches %q", tt.expr, text)
			}
		}
	}
	if _, err := compilePattern(`(?=new)`); err == nil {
		t.Error("an unknown lookahead compiles")
	}
}

func TestBlockAddresses(t *testing.T) {
	for _, tt := range []struct {
		cidr, gateway string
		first31       bool
		count         int
	}{
		{"203.0.113.8/29", "203.0.113.9", true, 5},
		{"203.0.113.0/28", "203.0.113.1", true, 13},
		{"203.0.113.4/30", "203.0.113.5", true, 1},
		{"203.0.113.4/31", "203.0.113.4", true, 1},
		{"203.0.113.4/31", "203.0.113.5", false, 1},
		{"2001:db8::/64", "2001:db8::1", true, 0},
	} {
		p := netip.MustParsePrefix(tt.cidr)
		if got := gatewayOf(p, tt.first31).String(); got != tt.gateway {
			t.Errorf("gateway of %s: %s, want %s", p, got, tt.gateway)
		}
		hosts := usableAddresses(p, tt.first31)
		if len(hosts) != tt.count || slices.Contains(hosts, tt.gateway) {
			t.Errorf("hosts of %s: %v, want %d without the gateway", p, hosts, tt.count)
		}
	}
}

func TestPoolSellsOut(t *testing.T) {
	now := time.Unix(0, 0)
	p := pool{ranges: map[string][]netip.Prefix{"ASH": {netip.MustParsePrefix("203.0.113.0/28")}},
		freed: map[netip.Prefix]time.Time{}}
	first, _ := p.buy("ASH", 30, false, now, time.Minute)
	second, ok := p.buy("ASH", 29, false, now, time.Minute)
	if !ok || first.String() != "203.0.113.0/30" || second.String() != "203.0.113.8/29" {
		t.Fatalf("sold %s and %s", first, second)
	}
	if _, ok := p.buy("ASH", 29, false, now, time.Minute); ok {
		t.Error("sold a third /29 of a /28")
	}
	if _, ok := p.buy("ASH", 64, true, now, time.Minute); ok {
		t.Error("sold IPv6 from an IPv4 range")
	}
	p.giveBack(second, now)
	if _, ok := p.buy("ASH", 29, false, now.Add(59*time.Second), time.Minute); ok {
		t.Error("sold within the quarantine")
	}
	if again, ok := p.buy("ASH", 29, false, now.Add(time.Minute), time.Minute); !ok || again != second {
		t.Error("not sold after the quarantine")
	}
	if p.take(netip.MustParsePrefix("203.0.113.0/24")) {
		t.Error("an overlapping range was taken")
	}
}

func TestRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := NewRealClock(10)
		if err := c.Wait(t.Context(), c.Now().Add(30*time.Second)); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("30 s of the model took %s (%v), want 3 s", time.Since(start), err)
		}
		made := c.Now()
		if shown := c.Shown(made); !shown.Equal(time.Now()) {
			t.Errorf("API time is %s, while clients' clocks show %s", shown, time.Now())
		}
		c.Advance(time.Minute)
		if got := c.Now().Sub(made); got != time.Minute {
			t.Errorf("leapt by %s, want 1m", got)
		}
	})
}

func TestManualClockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewManualClock(time.Unix(0, 0))
		done := make(chan error, 1)
		go func() { done <- c.Wait(t.Context(), time.Unix(10, 0)) }()
		c.Advance(9 * time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("waited 9 s of 10: %v", err)
		default:
		}
		c.Advance(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestEventsInOrder(t *testing.T) {
	s := New(Config{})
	start := s.clock.Now()
	var order []string
	note := func(name string) func() { return func() { order = append(order, name+s.now.Sub(start).String()) } }
	leave := s.enter()
	s.after(Duration(2*time.Second), note("c"))
	s.after(Duration(time.Second), func() { note("a")(); s.after(Duration(time.Second), note("d")) })
	s.after(Duration(time.Second), note("b"))
	leave()
	s.Advance(time.Hour)
	if want := []string{"a1s", "b1s", "c2s", "d2s"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func FuzzTagFilter(f *testing.F) {
	for _, text := range []string{"env.dev", ".", "a.", ".b", "a.b.c", "à.ú", "a_b-c.d",
		strings.Repeat("a", 101) + ".b"} {
		f.Add(text)
	}
	s := New(Config{Switches: Switches{TagFilter: "or"}})
	f.Fuzz(func(t *testing.T, text string) {
		name, value, _ := strings.Cut(text, ".")
		a := &account{tags: map[string]*tag{"1": {name: name}}}
		passes, faults := s.tagFilter(&call{account: a, query: url.Values{"tag": {text}}})
		if len(faults) > 1 || (faults == nil) != (tagText.MatchString(name) && tagText.MatchString(value)) {
			t.Fatalf("%q: faults %q", text, faults)
		}
		if faults == nil && (!passes([]assignment{{tagID: "1", value: value}}) || passes(nil)) {
			t.Errorf("%q does not pass only the tag %s=%s", text, name, value)
		}
	})
}

func FuzzRange(f *testing.F) {
	f.Add("182.16.0.146 - 182.16.0.148")
	f.Add("2001:db8::b - 2001:db8::d")
	f.Add("1.2.3.4-1.2.3.3")
	f.Fuzz(func(t *testing.T, text string) {
		from, to, err := parseRange(text)
		if err == nil && (to.Less(from) || from.Is4() != to.Is4()) {
			t.Errorf("%q: %s to %s", text, from, to)
		}
	})
}

// FuzzRequest: whatever a client sends, the simulator answers, keeps its invariants and never answers
// with what the documents do not allow.
func FuzzRequest(f *testing.F) {
	documents := specs(f)
	for _, op := range operations() {
		f.Add(op.method, op.api.prefix+op.path, "force=true", `{"id":"6047127fed34ecc3ba8402d2","ips":["203.0.113.4"]}`)
	}
	f.Add(http.MethodPost, "/ips/v1/ip-blocks", "", `{"location":"ASH","cidrBlockSize":"/29","tags":[{"name":"a"}]}`)
	f.Add(http.MethodPut, "/ips/v1/ip-blocks/6047127fed34ecc3ba8402d2/tags", "", `[{"name":"a","value":"b"},null]`)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		s := New(Config{Specs: documents})
		err := s.Seed(Seed{Accounts: []AccountSeed{{
			ID: "a", Clients: []ClientSeed{{ID: "c"}}, Tags: []TagSeed{{Name: "a"}},
			Networks: []NetworkSeed{{ID: "60473c2509268bc77fd06d29", Name: "public", Location: "ASH"}},
			Blocks: []BlockSeed{{ID: "6047127fed34ecc3ba8402d2", Location: "ASH", CIDR: "203.0.113.0/28",
				Network: "public"}},
			Servers: []ServerSeed{{ID: "5fa54d1e91867c03a0a7b4a4", Hostname: "n", Location: "ASH"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		leave := s.enter()
		s.grant(s.clients["c"], nil)
		value := ""
		for value = range s.tokens {
		}
		leave()
		path = strings.NewReplacer("{ipBlockId}", "6047127fed34ecc3ba8402d2", "{publicNetworkId}",
			"60473c2509268bc77fd06d29", "{serverId}", "5fa54d1e91867c03a0a7b4a4").Replace(path)
		req, err := http.NewRequestWithContext(t.Context(), method, "http://sim/", bytes.NewBufferString(body))
		if err != nil {
			return // no HTTP request at all
		}
		req.URL.Path = path
		req.URL.RawQuery = query
		req.Header.Set("Authorization", "Bearer "+value)
		req.Header.Set("Content-Type", "application/json")
		if strings.HasPrefix(path, "/_fake/") {
			return
		}
		recorder := httptest.NewRecorder()
		s.Handler().ServeHTTP(recorder, req)
		s.Advance(time.Hour)
		for _, v := range s.Violations() {
			if v.Rule == "simulator" || v.Rule == "openapi-response" {
				t.Errorf("%s %s?%s %s: %s", method, path, query, body, v)
			}
		}
	})
}
