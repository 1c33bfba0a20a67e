package vip

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/agents"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// A stage is a cluster whose nodes announce one address, with kube-vip or by the agents. Faults are made where they
// come from; settle does what kube-vip and the agents do, and observe derives what srv-a sees.
type stage struct {
	nodes  []*member
	agents bool
	// endpoints reports whether the Service has any; gone, whether it was deleted.
	endpoints, gone bool
	// leases are those that are renewed or not, by name, and watched is the one that the agent reads.
	leases  map[string]*election
	lease   string
	watched string
	// rival is the election for all Services, where nodes differ in svc_election.
	rival *election
}

type election struct {
	holder  string
	renewed bool
}

// member is a machine on the VLAN.
type member struct {
	name, mac string
	// stranger: it is no Node. unreported: no agent reports its hardware address.
	stranger, unreported bool
	// ready reports whether the Node has the label, runs whether kube-vip, or the agent, works there.
	ready, runs bool
	// announces is the interface on which kube-vip adds the address; cannotAdd: it fails to.
	announces string
	cannotAdd bool
	held      map[string]bool
	// ignores: its kernel does not answer ARP, as another finding of that node says.
	ignores bool
	// late: its agent has not seen yet that the Service is gone.
	late bool
	// leaves is the interface of its default route.
	leaves string
}

const vlanInterface = "bond0.100"

func newStage() *stage {
	s := &stage{endpoints: true, leases: map[string]*election{}, lease: "default/kubevip-web"}
	s.watched = s.lease
	s.leases[s.lease] = &election{"srv-b", true}
	for i, name := range []string{"srv-a", "srv-b", "srv-c"} {
		s.nodes = append(s.nodes, &member{name: name, mac: "02:00:00:00:00:0" + string(rune('a'+i)), ready: true,
			runs: true, announces: vlanInterface, held: map[string]bool{}, leaves: vlanInterface})
	}
	s.node("srv-b").held[vlanInterface] = true
	return s
}

func (s *stage) node(name string) *member {
	i := slices.IndexFunc(s.nodes, func(m *member) bool { return m.name == name })
	if i < 0 {
		return &member{held: map[string]bool{}}
	}
	return s.nodes[i]
}

// settle lets one node win the election, if there is a reason for one, and add the address.
func (s *stage) settle() {
	l := s.leases[s.lease]
	if l == nil {
		l = &election{}
	}
	holder := s.node(l.holder)
	able := func(m *member) bool { return m.runs && m.ready && !m.stranger }
	if l.renewed = able(holder) && !s.gone; !l.renewed && s.endpoints && !s.gone {
		if i := slices.IndexFunc(s.nodes, able); i >= 0 {
			holder = s.nodes[i]
			*l = election{holder.name, true}
		}
	}
	s.leases[s.lease] = l
	if l.renewed && s.endpoints && !holder.cannotAdd && !s.agents {
		holder.held[holder.announces] = true
	}
}

// claims reports whether a machine answers ARP for the address.
func (s *stage) claims(m *member) bool {
	owner := s.leases[s.lease]
	byAgent := s.agents && m.runs && m.ready && (owner.renewed || m.late) && owner.holder == m.name
	return !m.ignores && (m.held[vlanInterface] || byAgent)
}

// observe returns what a node finds.
func (s *stage) observe(name string) check.Finding {
	own := s.node(name)
	o := Observation{Target: Target{Address: netip.MustParseAddr("203.0.113.3"), Service: "default/web"}, Node: name,
		Interface: vlanInterface, By: kubevip.Announcer{}, Gone: s.gone, Held: slices.Sorted(maps.Keys(own.held)),
		NoEndpoints: !s.endpoints, Names: map[string]string{}}
	if own.held[vlanInterface] {
		o.ReturnBy = own.leaves
	}
	o.Answers = s.agents && s.claims(own) && !own.held[vlanInterface]
	for _, m := range s.nodes {
		if m == own || !s.claims(m) {
			continue
		}
		o.MACs = append(o.MACs, m.mac)
		o.Replied = true
		if m.stranger || m.unreported {
			o.Foreign = append(o.Foreign, m.mac)
		} else {
			o.Names[m.mac] = m.name
		}
	}
	if s.agents {
		o.By = agents.Announcer{}
	} else {
		o.Election = s.leaseOf().Election()
	}
	return Evaluate(o)
}

// leaseOf is what the agent reads.
func (s *stage) leaseOf() kubevip.Lease {
	l := kubevip.Lease{Name: s.watched, Global: "kube-system/plndr-svcs-lock", State: announcer.Missing}
	if e := s.leases[s.watched]; e != nil {
		l.Holder = e.holder
		l.State = map[bool]announcer.State{true: announcer.Held, false: announcer.Expired}[e.renewed]
	}
	if s.rival != nil {
		l.Rival = l.Global
		l.RivalHolder = s.rival.holder
	}
	return l
}

// act does what a sentence says; words are what its practice found in it.
type act func(s *stage, on *member, words []string)

// practices are what a person does who reads a sentence about an address; on is the node whose agent says it. One with
// several ways offers a choice.
var practices = []struct {
	says *regexp.Regexp
	ways []act
}{
	{regexp.MustCompile(`^ip address delete 203\.0\.113\.3/32 dev (\S+)$`), []act{
		func(s *stage, on *member, words []string) { delete(on.held, words[1]) }}},
	{regexp.MustCompile(`^(?:kube-vip|an agent) must run on a node that is ready for the public network`),
		[]act{
			func(s *stage, _ *member, _ []string) { s.node("srv-b").ready = true; s.node("srv-b").runs = true },
		}},
	{regexp.MustCompile(`^start pods that the selector of the Service matches$`), []act{
		func(s *stage, _ *member, _ []string) { s.endpoints = true }}},
	{regexp.MustCompile(`^run phoenixnap-agent diagnose on Node (\S+) and fix what it finds; if that is only this, `),
		[]act{func(s *stage, _ *member, words []string) {
			holder := s.node(words[1])
			if holder.ignores {
				holder.ignores = false // it is a finding of that node, with a fix of its own
			} else if s.observe(words[1]).Reason == ReasonHolderSilent {
				holder.restart()
			}
		}}},
	{regexp.MustCompile(`^restart kube-vip on this node, which adds the address again$`), []act{
		func(s *stage, on *member, _ []string) { on.restart() }}},
	{regexp.MustCompile(`^set kube-vip's vip_interface, and the annotation kube-vip.io/serviceInterface .*, to (\S+) `),
		[]act{func(s *stage, on *member, words []string) {
			on.announces = words[1]
			on.restart()
		}}},
	{regexp.MustCompile(`^make the gateway of the public network the node's default gateway, or route by source and by ` +
		`connection mark \(--manage=return-path does\); phoenixnap-agent diagnose explain PN501 says how$`),
		[]act{
			func(s *stage, on *member, _ []string) { on.leaves = vlanInterface },
		}},
	{regexp.MustCompile(`^find the server with this hardware address .* remove the address from it; if it is a Node, `),
		[]act{func(s *stage, _ *member, _ []string) {
			for _, m := range s.nodes {
				if m.stranger {
					clear(m.held)
				}
				m.unreported = false
			}
		}}},
	{regexp.MustCompile(`^run kube-vip on the node that answers; if it is to run on other nodes only, run it there and ` +
		`delete the address on this one: ip address delete \S+/32 dev (\S+)$`),
		[]act{
			func(s *stage, _ *member, _ []string) { s.answering("").runs = true },
			func(s *stage, _ *member, words []string) {
				old := s.answering("")
				s.nodes[len(s.nodes)-1].runs = true
				delete(old.held, words[1])
			},
		}},
	{regexp.MustCompile(`^the agent of this node stops as soon as it sees .*; if this lasts, restart the agent$`),
		[]act{func(_ *stage, on *member, _ []string) { on.late = false }}},
	{regexp.MustCompile(`set --kube-vip-lease of the agent to <namespace>/<name> of the lease in use$`),
		[]act{func(s *stage, _ *member, _ []string) { s.watched = s.lease }}},
}

// wheres are the notes that say on which node a command is to be run.
var wheres = map[string]func(s *stage, on *member, words []string) *member{
	`^on this node: `: func(_ *stage, on *member, _ []string) *member { return on },
	`^on the node that does not hold the lease \S+, which is held by Node (\S+)$`: func(s *stage, _ *member,
		words []string) *member {
		return s.answering(words[1])
	},
	`^on the node that does not announce it: .* kube-vip.io/vipHost names the holder$`: func(s *stage, _ *member,
		_ []string) *member {
		if s.agents {
			return &member{} // no agent writes that annotation
		}
		return s.answering(s.leases[s.lease].holder)
	},
	`^first set svc_election of kube-vip to the same value on all nodes; then on the node that still announces it ` +
		`without the lease$`: func(s *stage, _ *member, _ []string) *member {
		s.rival = nil
		return s.answering(s.leases[s.lease].holder)
	},
	`^on the node of which an interface carries it: `: func(s *stage, _ *member, _ []string) *member {
		return s.carrying()
	},
	`^on the node that answers$`: func(s *stage, _ *member, _ []string) *member { return s.answering("") },
}

// answering is a machine that answers and is not the one of that name.
func (s *stage) answering(but string) *member {
	i := slices.IndexFunc(s.nodes, func(m *member) bool { return s.claims(m) && m.name != but })
	return s.nodes[i]
}

func (s *stage) carrying() *member {
	return s.nodes[slices.IndexFunc(s.nodes, func(m *member) bool { return len(m.held) > 0 })]
}

// restart ends kube-vip, which removes its address, and starts it.
func (m *member) restart() {
	clear(m.held)
	m.runs = true
	m.cannotAdd = false
}

// shows are commands that only show something.
var shows = regexp.MustCompile(`^kubectl .*get (pods|nodes|leases|configmap|endpointslices) `)

// adviceCases are ways in which an announcement goes wrong, as a node sees it. Each begins with a Service that srv-b
// announces.
var adviceCases = map[string]struct {
	reason string
	make   func(s *stage)
	// on is the node that finds it; srv-a where it is empty. then is the reason that comes next; OK where it is empty.
	on, then string
}{
	"kube-vip runs nowhere": {reason: "NoAnswer", make: func(s *stage) {
		s.each(func(m *member) { m.runs = false })
		clear(s.node("srv-b").held)
	}},
	"no node is ready": {reason: "NoAnswer", make: func(s *stage) {
		s.each(func(m *member) { m.ready = false })
		clear(s.node("srv-b").held)
	}},
	"no agent runs": {reason: "NoAnswer", make: func(s *stage) {
		s.agents = true
		s.each(func(m *member) { m.runs = false })
		clear(s.node("srv-b").held)
	}},
	"no endpoints": {reason: "NoEndpoints", make: func(s *stage) {
		s.endpoints = false
		clear(s.leases)
		clear(s.node("srv-b").held)
	}},
	"the kernel of the holder ignores ARP": {reason: "HolderSilent", make: func(s *stage) {
		s.node("srv-b").ignores = true
	}},
	"deleted by hand":                     {reason: "HolderSilent", make: taken},
	"deleted by hand, as the holder sees": {reason: "HolderSilent", on: "srv-b", make: taken},
	"another node kept it, as the holder sees": {reason: "WrongNode", on: "srv-b", then: "HolderSilent",
		make: kept},
	"kube-vip was killed": {reason: "StaleAddress", make: func(s *stage) {
		s.node("srv-a").held[vlanInterface] = true
	}},
	"killed, on another interface": {reason: "StaleAddress", make: func(s *stage) {
		s.node("srv-a").held["bond0"] = true
	}},
	"left by a Service": {reason: "StaleAddress", on: "srv-b", then: "NoAnswer", make: func(s *stage) {
		s.gone = true
	}},
	"left by kube-vip, with agents": {reason: "StaleAddress", on: "srv-b", make: func(s *stage) {
		s.agents = true
	}},
	"answered after the Service is gone": {reason: "StaleAddress", on: "srv-b", then: "NoAnswer", make: func(s *stage) {
		s.agents = true
		s.gone = true
		s.node("srv-b").late = true
		clear(s.node("srv-b").held)
	}},
	"two elections": {reason: "DuplicateAnswer", make: func(s *stage) {
		s.node("srv-c").held[vlanInterface] = true
		s.rival = &election{"srv-c", true}
	}},
	"two machines, one holds the lease": {reason: "DuplicateAnswer", make: func(s *stage) {
		s.node("srv-c").held[vlanInterface] = true
	}},
	"two machines, no lease is read": {reason: "DuplicateAnswer", then: "LeaseMissing", make: func(s *stage) {
		s.node("srv-c").held[vlanInterface] = true
		s.watched = "default/another"
	}},
	"two machines, with agents": {reason: "DuplicateAnswer", make: func(s *stage) {
		s.agents = true
		clear(s.node("srv-b").held)
		s.node("srv-c").held[vlanInterface] = true
	}},
	"vip_interface": {reason: "WrongInterface", on: "srv-b", make: func(s *stage) {
		clear(s.node("srv-b").held)
		s.node("srv-b").announces = "bond0"
	}},
	"the default route leads elsewhere": {reason: "ReturnPathElsewhere", on: "srv-b", make: func(s *stage) {
		s.node("srv-b").leaves = "bond0.11"
	}},
	"another node kept it": {reason: "WrongNode", then: "HolderSilent", make: kept},
	"a machine of no Node": {reason: "ForeignOwner", make: func(s *stage) {
		s.nodes = append(s.nodes, &member{name: "other", mac: "02:00:00:00:00:66", stranger: true,
			held: map[string]bool{vlanInterface: true}})
	}},
	"a Node without an agent": {reason: "ForeignOwner", make: func(s *stage) { s.node("srv-b").unreported = true }},
	"kube-vip was killed everywhere": {reason: "LeaseExpired", make: func(s *stage) {
		s.each(func(m *member) { m.runs = false })
	}},
	"svc_leasename": {reason: "LeaseMissing", make: func(s *stage) { s.watched = "kube-system/plndr-svcs-lock" }},
}

func (s *stage) each(do func(m *member)) {
	for _, m := range s.nodes {
		do(m)
	}
}

// taken has the address deleted from the interface of its holder, which does not notice.
func taken(s *stage) {
	clear(s.node("srv-b").held)
	s.node("srv-b").cannotAdd = true
}

// kept has another node keep the address, which the holder of the lease cannot add.
func kept(s *stage) {
	taken(s)
	s.node("srv-c").held[vlanInterface] = true
}

// follow does in one of several ways what a fix says that the agent of a node prints. It returns how many ways there
// are, zero when it does not say what to do.
func (s *stage) follow(t *testing.T, on *member, fix check.Fix, choice int) (choices int) {
	t.Helper()
	placed := fix.Note == ""
	for says, where := range wheres {
		if words := regexp.MustCompile(says).FindStringSubmatch(fix.Note); words != nil {
			placed = true
			on = where(s, on, words)
		}
	}
	for _, text := range append(slices.Clone(fix.Commands), fix.Note) {
		known := shows.MatchString(text) || text == fix.Note && placed
		for _, practice := range practices {
			if words := practice.says.FindStringSubmatch(text); words != nil {
				known = true
				choices = max(choices, len(practice.ways))
				practice.ways[min(choice, len(practice.ways)-1)](s, on, words)
			}
		}
		if !known {
			t.Errorf("the test cannot follow %q", text)
		}
	}
	return choices
}

// TestAdviceRemovesItsFinding: whoever does what a finding says, on the node that it names and in each way that it
// offers, is rid of it.
func TestAdviceRemovesItsFinding(t *testing.T) {
	if f := newStage().observe("srv-a"); f.Status != check.OK {
		t.Fatalf("the stage is not healthy: %+v", f)
	}
	for name, tc := range adviceCases {
		t.Run(name, func(t *testing.T) {
			on := cmp.Or(tc.on, "srv-a")
			faulty := func() (*stage, check.Finding) {
				s := newStage()
				tc.make(s)
				s.settle()
				return s, s.observe(on)
			}
			_, found := faulty()
			if found.Reason != tc.reason || len(found.Fixes) == 0 {
				t.Fatalf("found %+v, want %s with a fix", found, tc.reason)
			}
			choices := 1
			for choice := 0; choice < choices; choice++ {
				s, _ := faulty()
				choices = 0
				for _, fix := range found.Fixes {
					choices = max(choices, s.follow(t, s.node(on), fix, choice))
				}
				s.settle()
				if choices == 0 {
					t.Errorf("%+v says nothing that can be followed", found.Fixes)
				}
				if rest := s.observe(on); rest.Reason != cmp.Or(tc.then, ReasonAnswered) {
					t.Errorf("way %d of %+v leads to %s: %s", choice, found.Fixes, rest.Reason, rest.Cause)
				}
			}
		})
	}
}
