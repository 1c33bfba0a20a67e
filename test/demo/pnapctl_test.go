//go:build linux

package demo

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// program writes an executable script.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pnapctl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPNAPCTLIsCheckedFirst(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "", program(t, ""): "", plain: "permission denied", "/nowhere/pnapctl": "no such file",
	} {
		err := Options{PNAPCTL: path}.checkPNAPCTL()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

// TestPNAPCTLActs: the acts with pnapctl are there only with it, and the last one is at the end.
func TestPNAPCTLActs(t *testing.T) {
	titles := func(path string, keep bool) (with []string, last string) {
		s := &story{options: Options{PNAPCTL: path}}
		for _, a := range s.steps(keep) {
			last = a.title
			if strings.HasPrefix(a.title, "pnapctl") {
				with = append(with, a.title)
			}
		}
		return with, last
	}
	for _, keep := range []bool{false, true} {
		if with, _ := titles("", keep); with != nil {
			t.Errorf("without pnapctl, keep %v: acts %q", keep, with)
		}
		with, last := titles("pnapctl", keep)
		if want := map[bool]int{false: 2, true: 1}[keep]; len(with) != want || !slices.Contains(with, last) {
			t.Errorf("keep %v: acts %q, the last of all is %q", keep, with, last)
		}
	}
}

// TestShowAccount: what the program says is shown, and its configuration reaches the account.
func TestShowAccount(t *testing.T) {
	account := simtest.Account()
	o := Options{Dir: t.TempDir(), PNAPCTL: program(t, `echo "$1 $2"; cat "$4"; test "$2" != public-networks`)}
	o.addOwner(&account)
	_, url := simtest.New(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	var out strings.Builder
	s := &story{presenter: newPresenter(&out), Cluster: &cluster.Cluster{Sim: &cluster.Simulator{URL: url}}, options: o}
	if err := s.showAccount(t.Context()); err == nil || !strings.Contains(err.Error(), "pnapctl get public-networks") {
		t.Errorf("a program that fails: %v", err)
	}
	for _, want := range []string{"| get ip-blocks\n", "| get public-networks\n", `| ipHostname: "` + url + `/ips/v1"`,
		`| networksHostname: "` + url + `/networks/v1"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not shown: %q in\n%s", want, out.String())
		}
	}
	_, after, _ := strings.Cut(out.String(), `tokenURL: "`)
	tokenURL, _, _ := strings.Cut(after, `"`)
	form := strings.NewReader("grant_type=client_credentials&client_id=" + ownerID + "&client_secret=" + ownerSecret)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tokenURL, form)
	request.RequestURI = "" // of a server's side
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the owner's token: %s", resp.Status)
	}
}
