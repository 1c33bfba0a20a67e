package diagnose

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestInspects(t *testing.T) {
	for command, want := range map[string]bool{
		"cat /proc/net/bonding/bond0":                         true,
		"ip route get 192.0.2.1":                              true,
		"ip address show to 192.0.2.0/28":                     true,
		"kubectl --namespace kube-system get pods":            true,
		"tcpdump -n -e -i bond0 -c 20 vlan":                   true,
		"ip address delete 192.0.2.2/32 dev bond0.100":        false,
		"ip neigh flush 192.0.2.1":                            false,
		"netplan apply":                                       false,
		"sysctl -p /etc/sysctl.d/90-phoenixnap.conf":          false,
		"nft -f /etc/phoenixnap-return-path.nft":              false,
		"kubectl --namespace kube-system rollout restart ds/": false,
		"": false,
	} {
		if got := inspects(command); got != want {
			t.Errorf("%q only shows something: %t, want %t", command, got, want)
		}
	}
}

// The colours of an explanation are the only escapes in it, and they reach the terminal.
func TestAnExplanationInColour(t *testing.T) {
	entry, known := EntryOf("PN301")
	if !known {
		t.Fatal("PN301 is not known")
	}
	var plain, colored bytes.Buffer
	if err := errors.Join(entry.Text(&plain, Style{}), entry.Text(&colored, Style{Color: true})); err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(plain.String(), "PN301", "\x1b[1mPN301\x1b[0m", 1); colored.String() != want {
		t.Errorf("got %q, want %q", colored.String(), want)
	}
}
