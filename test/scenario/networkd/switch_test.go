//go:build linux

package networkd

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// switchVariable holds the process ID of the switch, if there is one.
const switchVariable = "PNAP_SWITCH"

// switchScript is a switch that speaks LACP, as those of phoenixNAP do, with the gateways behind it. It takes the ports
// that are plugged in, in their order. By the hash policy and the address, all its frames of the VLAN leave by the
// second one.
const switchScript = `
ip link delete bond0 2>/dev/null || true # the kernel's module makes one in each namespace
ip -batch - <<END
link set lo up
link add switch0 type bond mode 802.3ad miimon 50 lacp_rate fast xmit_hash_policy vlan+srcmac
link set switch0 mtu 9000 up
link add link switch0 name switch0.100 address 02:00:00:00:00:99 type vlan id 100
link set switch0.100 up
address add 192.0.2.1/28 dev switch0.100
address add 203.0.113.1/29 dev switch0.100
END
while sleep 0.1; do
	if ip -o link show port2 2>/dev/null | grep -qv ' master '; then
		for port in port1 port2; do
			ip link set $port mtu 9000 master switch0
			ip link set $port up
		done
	fi
done
`

// connectSwitch starts a switch, into which the ports of the hardware to come are plugged.
func connectSwitch(t *testing.T) {
	t.Helper()
	cmd := exec.Command("dash", "-c", switchScript)
	cmd.SysProcAttr = kernel.Isolation(unix.CLONE_NEWNET)
	cmd.Stderr = os.Stderr
	must(t, "start the switch", cmd.Start())
	t.Setenv(switchVariable, strconv.Itoa(cmd.Process.Pid))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// answers are what the gateways answer: those behind the switch if there is one. How soon does not count, for the
// machine is slow. No other machine has the node's address.
func answers(t *testing.T, link string, asks []check.Question) []check.ARPAnswer {
	t.Helper()
	all := make([]check.ARPAnswer, len(asks))
	var questions []arp.Question
	var gateways []*check.ARPAnswer
	for i, q := range asks {
		all[i] = check.ARPAnswer{Target: q.Target, Source: q.Source}
		if q.Source != netip.IPv4Unspecified() {
			gateways = append(gateways, &all[i])
			questions = append(questions, arp.Question{Target: q.Target, Source: q.Source})
		}
	}
	heard := make([]arp.Answer, len(questions))
	for i := range heard {
		heard[i] = arp.Answer{MACs: []string{"02:00:00:00:00:99"}, Replied: true}
	}
	var err error
	if os.Getenv(switchVariable) != "" {
		heard, err = arp.NewProber().Ask(t.Context(), link, questions)
	}
	for i, answer := range gateways {
		if err != nil {
			answer.Error = err.Error()
			continue
		}
		answer.MACs = heard[i].MACs
		answer.Replied = heard[i].Replied
	}
	return all
}

// lacpServers start servers of each tool whose bond has a mode that the switch does not expect, by the configuration.
var lacpServers = map[check.Tool]func(*testing.T) *service{
	check.Networkd: func(t *testing.T) *service {
		t.Helper()
		files := maps.Clone(publicFiles)
		files["10-bond0.netdev"] = roundRobin.Replace(uplinkFiles["10-bond0.netdev"])
		return serve(t, files)
	},
	check.Netplan: func(t *testing.T) *service {
		t.Helper()
		return serveNetplan(t, roundRobin.Replace(installerFile+publicNetplan))
	},
	check.Ifupdown: func(t *testing.T) *service {
		t.Helper()
		return serveIfupdown(t, roundRobin.Replace(sourceLine+uplinkInterfaces+publicInterfaces))
	},
	check.NetworkManager: func(t *testing.T) *service {
		t.Helper()
		return serveNetworkManager(t, roundRobin)
	},
}

var roundRobin = strings.NewReplacer("active-backup", "balance-rr")

// TestEachFix connects a server of each tool to a switch that expects LACP, with the gateways behind it, makes one
// fault after the other and follows what the finding prints for the tool: then no check finds anything, old or new. In
// the usual run it takes one of the tools, by lot.
func TestEachFix(t *testing.T) {
	tools := slices.Sorted(maps.Keys(lacpServers))
	rand.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
	for _, tool := range tools[:min(seeds.Count(t, 1), len(tools))] {
		t.Run(string(tool), func(t *testing.T) {
			connectSwitch(t)
			s := lacpServers[tool](t)
			s.repair(faultNamed(wrongMode).found(t))
			s.requireHealthy(wrongMode)
			for _, name := range single {
				f := faultNamed(name)
				shell(t, f.script)
				s.repair(f.found(t))
				s.requireHealthy(name)
			}
		})
	}
}

// requireHealthy requires that no check finds anything once the tool is done. What a fix has left is no matter for the
// next.
func (s *service) requireHealthy(fixed string) {
	s.t.Helper()
	var all []check.ID
	for _, f := range findings(s.t).Findings {
		all = append(all, f.ID)
	}
	if lacks := s.remains(all); len(lacks) > 0 {
		s.t.Errorf("after the fix of %s there is %q", fixed, lacks)
		s.again(s.t)
		healthy(s.t)
	}
}
