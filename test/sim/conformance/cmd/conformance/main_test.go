package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

func environment(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := values[name]
		return value, set
	}
}

// The command works with the file that the controller has, only reads unless it may buy, and asks before it buys.
func TestTheCommandReadsAndAsksBeforeItBuys(t *testing.T) {
	_, url := simtest.Unjudged(t, pnapsim.Config{Clock: pnapsim.NewRealClock(100)}, simtest.Seed())
	file := filepath.Join(t.TempDir(), "cloud-sa.json")
	content := fmt.Sprintf(`{"clientID": %q, "clientSecret": %q, "location": "ASH", "base-url": %q, "loadbalancer": "kube-vip://x"}`, simtest.ClientID, simtest.ClientSecret, url)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args, typed string
		want        []string
		wantErr     string
	}{
		{"", "", []string{"confirmed  missing            403", "not known  createStatus",
			"figure conformance_switches_answered 5 switches", "switches {"}, ""},
		{"--buy", "no\n", []string{"one IPv4 block /31 in ASH", "Type yes to buy it", "not known  createStatus"},
			"not confirmed"},
		{"--buy", "", []string{"Type yes"}, "not confirmed"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), append(strings.Fields(tc.args), "--cloud-config="+file), environment(nil),
			strings.NewReader(tc.typed), &out)
		if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%q: %v, want %q", tc.args, err, tc.wantErr)
		}
		for _, want := range tc.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: %q is missing in\n%s", tc.args, want, out.String())
			}
		}
		if strings.Contains(out.String(), simtest.ClientSecret) {
			t.Errorf("%q shows the secret", tc.args)
		}
	}
}

func TestWrongUsageIsReported(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"clientSecret": "a-secret-that-must-not-leak"`), 0o600); err != nil {
		t.Fatal(err)
	}
	known := map[string]string{"PNAP_CLIENT_ID": "a", "PNAP_CLIENT_SECRET": "b"}
	for _, tc := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{nil, nil, "PNAP_CLIENT_ID"},
		{[]string{"--cloud-config=" + broken}, nil, "is not JSON"},
		{[]string{"--buy"}, known, "--buy needs --location"},
		{[]string{"buy"}, known, `unknown word "buy"`},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tc.args, environment(tc.env), strings.NewReader(""), &out)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "must-not-leak") {
			t.Errorf("%q: %v, want %q", tc.args, err, tc.want)
		}
	}
}
