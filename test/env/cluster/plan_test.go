//go:build linux

package cluster

import (
	"fmt"
	"testing"
)

// TestServersInTwoNetworks: those at home are members of both networks there, those elsewhere of one.
func TestServersInTwoNetworks(t *testing.T) {
	c, err := New(Options{Servers: 2, AwayServers: 1, SecondNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	account := seed(c.Servers).Accounts[0]
	if len(account.Networks) != 3 || len(account.Blocks) != 3 {
		t.Errorf("networks %+v with blocks %+v, want three of each", account.Networks, account.Blocks)
	}
	for i, want := range []string{
		"203.0.113.1 [{60473c2509268bc77fd06d29  [203.0.113.2]} {60473c2509268bc77fd06d2d  [192.0.2.10]}]",
		"203.0.113.1 [{60473c2509268bc77fd06d29  [203.0.113.3]} {60473c2509268bc77fd06d2d  [192.0.2.11]}]",
		"192.0.2.1 [{60473c2509268bc77fd06d2b  [192.0.2.2]}]",
	} {
		s := account.Servers[i]
		if got := fmt.Sprint(s.Gateway, " ", s.Networks); got != want {
			t.Errorf("%s has %s, want %s", s.Hostname, got, want)
		}
	}
}
