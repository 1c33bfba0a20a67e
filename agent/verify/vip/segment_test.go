package vip

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	vif         = "bond0.100"
	garpPeriod  = 3 * time.Second
	askDuration = 300 * time.Millisecond
	askRounds   = 3
)

// segment is a public network with machines on it: a wire, kernels that answer for what they carry, and announcers that
// send gratuitous ARP every 3 s, as kube-vip does. The Services and leases of the cluster are there, too.
type segment struct {
	t *testing.T

	mu       sync.Mutex
	machines []*machine
	services []*corev1.Service
	leases   map[string]kubevip.Lease // by namespace/name of the Service; Read is filled in
	requests int
	lost     bool                              // questions cannot be put
	agents   bool                              // they announce, not kube-vip
	others   []func(ctx context.Context) error // what else runs
}

// machine is one that is on the wire; with a watcher it is a Node.
type machine struct {
	*segment
	name, mac  string
	ip         netip.Addr
	carries    map[netip.Addr][]string // address → interfaces
	deaf       bool                    // its kernel answers no ARP
	answers    map[netip.Addr]bool     // by its agent
	announces  map[netip.Addr]bool
	ready      bool
	returnBy   string
	watcher    *Watcher
	before     contract.ReportedAddresses
	findings   map[netip.Addr]check.Finding
	outcome    check.Outcome
	reported   contract.ReportedAddresses
	reports    int // how often what is reported has changed
	events     []string
	recorded   []string // the events as they are on the Service
	conditions int      // how often the result has changed
}

func newSegment(t *testing.T) *segment {
	return &segment{t: t, leases: map[string]kubevip.Lease{}}
}

// machine adds a machine that is no Node.
func (s *segment) machine(n int) *machine {
	m := &machine{
		segment: s, name: fmt.Sprintf("srv-%d", n), mac: fmt.Sprintf("02:00:00:00:%02x:%02x", n/256, n%256),
		ip: netip.AddrFrom4([4]byte{192, 0, 2 + byte(n/250), byte(n%250 + 1)}), carries: map[netip.Addr][]string{},
		announces: map[netip.Addr]bool{},
		answers:   map[netip.Addr]bool{}, ready: true, returnBy: vif,
	}
	s.machines = append(s.machines, m)
	return m
}

// node adds a machine with an agent.
func (s *segment) node(n int) *machine {
	m := s.machine(n)
	m.watcher = New(Config{
		Node: m.name, Prober: m, Router: m, Announcers: kinds.All(m.Of), Owners: owners{s}.Of, View: m.view,
		Reported: func() (contract.ReportedAddresses, bool) { return m.before, true },
		Services: func() ([]*corev1.Service, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.services), true
		},
		Interval: 10 * time.Second, Record: m.record, Report: m.report, Event: m.event,
	})
	return m
}

// run has everything live in the bubble of the test until stopped.
func (s *segment) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var group sync.WaitGroup
	for _, m := range s.machines {
		if m.watcher != nil {
			group.Go(func() { _ = m.watcher.Run(ctx) })
		}
	}
	for _, run := range s.others {
		group.Go(func() {
			if err := run(ctx); err != nil {
				s.t.Error(err)
			}
		})
	}
	group.Go(func() {
		for tick := time.NewTicker(garpPeriod); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				s.gratuitous()
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

func (s *segment) gratuitous() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		for a := range m.announces {
			s.broadcast(arp.Announcement{Address: a, MAC: m.mac, Target: a, Reply: true})
		}
	}
}

// broadcast reaches every machine, the sender's own listener included.
func (s *segment) broadcast(c arp.Announcement) {
	for _, m := range s.machines {
		if m.watcher != nil {
			m.watcher.Hear(arp.Heard{Announcement: c, At: time.Now(), Own: c.MAC == m.mac})
		}
	}
}

// Ask asks as the machine: others hear the requests, and only it hears the replies.
func (m *machine) Ask(ctx context.Context, _ string, questions []arp.Question) ([]arp.Answer, error) {
	answers := make([]arp.Answer, len(questions))
	for round := range askRounds {
		m.mu.Lock()
		if m.lost {
			m.mu.Unlock()
			return nil, fmt.Errorf("operation not permitted")
		}
		if round == 0 {
			m.requests += len(questions)
		}
		for i, q := range questions {
			m.ask(q.Target, &answers[i])
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return answers, ctx.Err()
		case <-time.After(askDuration / askRounds):
		}
		if !slices.ContainsFunc(answers, func(a arp.Answer) bool { return !a.Replied }) {
			break
		}
	}
	return answers, nil
}

// ask sends a request, unless it was answered already.
func (m *machine) ask(target netip.Addr, answer *arp.Answer) {
	if answer.Replied {
		return
	}
	m.broadcast(arp.Announcement{Address: m.ip, MAC: m.mac, Target: target})
	for _, other := range m.machines {
		if other != m && !other.deaf && (other.answers[target] || slices.Contains(other.carries[target], vif)) {
			answer.MACs = append(answer.MACs, other.mac)
			answer.Replied = true
		}
	}
	slices.Sort(answer.MACs)
}

func (m *machine) Routes(_ check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := []check.RouteAnswer{{RouteQuestion: questions[0], Interface: m.returnBy}, {RouteQuestion: questions[1]}}
	if _, answers[1].Local = m.carries[questions[1].Destination]; !answers[1].Local {
		answers[0].Interface = ""
		answers[0].Error = "ENETUNREACH: network is unreachable"
	}
	return answers
}

// Of returns the lease of a Service, as if it had been read this moment.
func (m *machine) Of(service *corev1.Service, _ time.Time) kubevip.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	lease := m.leases[service.Namespace+"/"+service.Name]
	lease.Read = time.Now()
	return lease
}

// owners is the MAC table of the segment.
type owners struct{ *segment }

func (o owners) Of(mac string, _ bool, _ ...string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.machines {
		if m.mac == mac && m.watcher != nil {
			return m.name, true
		}
	}
	return "", true
}

func (m *machine) view() (View, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	links := []check.Link{{Index: 1, Name: vif, MAC: m.mac}, {Index: 2, Name: "bond0", MAC: m.mac}}
	var addresses []check.Address
	for a, interfaces := range m.carries {
		for _, name := range interfaces {
			index := slices.IndexFunc(links, func(l check.Link) bool { return l.Name == name }) + 1
			addresses = append(addresses, check.Address{LinkIndex: index, Prefix: netip.PrefixFrom(a, 32)})
		}
	}
	addresses = append(addresses, check.Address{LinkIndex: 1, Prefix: netip.PrefixFrom(m.ip, 24)})
	network := contract.NodeNetwork{IPs: []netip.Addr{m.ip},
		Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("203.0.113.0/24")}}}
	kind := contract.AnnouncerKubeVIP
	if m.agents {
		kind = contract.AnnouncerAgent
	}
	return View{
		Ready: m.ready, Why: "VLANInterfaceDown", Announcer: kind, Answers: slices.SortedFunc(maps.Keys(m.answers),
			netip.Addr.Compare), Expected: check.Expected{Network: network},
		Report:   check.Report{Interface: vif, Source: m.ip.String()},
		Snapshot: check.Snapshot{Links: links, Addresses: addresses},
	}, true
}

func (m *machine) record(findings []check.Finding, v check.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.Reason != ReasonConfirming && v != m.outcome {
		m.outcome, m.conditions = v, m.conditions+1
	}
	m.findings = map[netip.Addr]check.Finding{}
	for _, f := range findings {
		for _, service := range m.services {
			if a := netip.MustParseAddr(service.Annotations[contract.ServiceIPAddress]); f.Title[len(f.Title)-len(
				service.Name):] == service.Name {
				m.findings[a] = f
			}
		}
	}
}

func (m *machine) report(r contract.ReportedAddresses) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(m.reported, r) {
		m.reports++
	}
	m.reported = maps.Clone(r)
}

func (m *machine) event(service *corev1.Service, node string, f check.Finding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, eventOf(f))
	recorder := record.NewFakeRecorder(1)
	Recorder(recorder)(service, node, f)
	for len(recorder.Events) > 0 {
		m.recorded = append(m.recorded, <-recorder.Events)
	}
}

// change makes a change and has the nodes that it concerns notice, as kernel events do.
func (s *segment) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	for _, m := range s.machines {
		if m.watcher != nil {
			m.watcher.Wake()
		}
	}
}

// serve adds a Service with an address.
func (s *segment) serve(n int) netip.Addr {
	a := netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})
	s.services = append(s.services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web%03d", n), UID: types.UID(fmt.Sprint(n)),
			Annotations: map[string]string{contract.ServiceIPAddress: a.String()},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	})
	return a
}

// hold makes the machine carry and announce an address, and hold its lease.
func (m *machine) hold(a netip.Addr) {
	m.carries[a] = []string{vif}
	m.announces[a] = true
	m.lease(a, announcer.Held, m.name)
}

// answer makes the machine answer for an address as the announcers of the segment do.
func (m *machine) answer(a netip.Addr) {
	if m.agents {
		m.answers[a] = true
	} else {
		m.hold(a)
	}
}

func (s *segment) lease(a netip.Addr, state announcer.State, holder string) {
	name := fmt.Sprintf("default/web%03d", a.As4()[3])
	s.leases[name] = kubevip.Lease{Name: name, State: state, Holder: holder}
}

// drop makes the machine release an address cleanly.
func (m *machine) drop(a netip.Addr) {
	delete(m.carries, a)
	delete(m.announces, a)
}

// say writes the condition of a Service as the controller does.
func (s *segment) say(a netip.Addr, status metav1.ConditionStatus, reason string) {
	for i, service := range s.services {
		if service.Annotations[contract.ServiceIPAddress] == a.String() {
			said := service.DeepCopy()
			meta.SetStatusCondition(&said.Status.Conditions,
				metav1.Condition{Type: contract.ServiceConditionAnnounced, Status: status, Reason: reason})
			s.services[i] = said
		}
	}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// asked is how many questions were put.
func (s *segment) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// last is the last result of the node.
func (m *machine) last() check.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outcome
}

// entry is what the node reports of an address.
func (m *machine) entry(a netip.Addr) contract.ReportedAddress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reported[a]
}
