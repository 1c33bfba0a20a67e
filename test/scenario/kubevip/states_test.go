//go:build linux

package kubevip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// sighting is what an agent reported for an address: the ID of a finding, or fine.
type sighting struct {
	node, id string
	address  netip.Addr
}

// healthy is the state to begin with.
const healthy = "announced as it should be"

// fine stands for the finding of an address that is announced as it should be.
const fine = "OK"

// withoutEndpoints is the finding of an address that kube-vip does not announce, because its Service has no endpoints.
const withoutEndpoints = "PN601w"

// expectation is a sighting to come, by one of several nodes.
type expectation struct {
	version, state string
	id             string
	address        netip.Addr
	nodes          []string
	since          time.Time
	seen           time.Time
	by             string
}

// side is one version of kube-vip on two servers, with processes of its own for each namespace, so that each can be
// broken by itself.
type side struct {
	*harness
	version, x, y, z string
	processes        map[string]int // by server and namespace
	addresses        map[string]netip.Addr
	endpointless     []string      // Services whose condition does not say yet that they have no endpoints
	pause            time.Duration // after a start
	patient          time.Time     // until when a kube-vip that does not answer is not restarted
}

func (s *side) namespace(of string) string { return strings.ReplaceAll(s.version, ".", "-") + "-" + of }

func (s *side) announce(server, namespace string) {
	s.processes[server+"/"+namespace] = s.kubeVIP(s.version, server, s.namespace(namespace))
}

// revive restarts every kube-vip that ended without being killed by the test, as the kubelet does. v0.9.1 can crash
// when a Service changes that it is just taking in (a nil pointer in findServiceInstance), and v1.2.2 when many are
// created.
func (s *side) revive() {
	s.T.Helper()
	for key, id := range s.processes {
		p, err := s.Lab.Await(s.T.Context(), id, 0)
		s.Must("read the state of kube-vip", err)
		if server, namespace, _ := strings.Cut(key, "/"); p.Exited {
			s.T.Logf("kube-vip %s for %s on %s ended with %d: restarting it", s.version, namespace, server, p.Code)
			s.announce(server, namespace)
		}
	}
}

// startUp is how long a kube-vip may take until it answers for an address.
const startUp = 45 * time.Second

// heal restarts a kube-vip that does not have one of its addresses, which is the remedy that the finding names. On a
// starved machine, kube-vip can fail to take in one of many Services that are created at once. It restarts one at a
// time, and waits twice as long before the next: a dozen that start at once starve each other, and each takes all its
// addresses away for a while.
func (s *side) heal(w *witness) {
	s.T.Helper()
	s.revive()
	if time.Now().Before(s.patient) {
		return
	}
	for name, address := range s.addresses {
		namespace, _, _ := strings.Cut(name, "/")
		server := s.x
		if namespace == "deaf" {
			server = s.z
		}
		if w.silent(address) && !strings.Contains(s.IP(server, "-4", "address", "show"), address.String()+"/") {
			s.T.Logf("kube-vip %s for %s on %s does not have the address of %s: restarting it", s.version, namespace,
				server, name)
			s.signal(server, namespace, syscall.SIGTERM) // revive starts it again
			s.pause *= 2
			s.patient = time.Now().Add(s.pause)
			return
		}
	}
}

// standsBy waits until a kube-vip is ready to take over: its log says that it waits for the Lease of a Service, which
// the other one holds.
func (s *side) standsBy(server, namespace string) {
	s.T.Helper()
	name := "kube-vip-" + server + "-" + s.namespace(namespace)
	for deadline := time.Now().Add(phaseLimit); ; time.Sleep(100 * time.Millisecond) {
		s.revive()
		log, err := s.Lab.Log(s.T.Context(), name)
		s.Must("read the log of "+name, err)
		if strings.Contains(strings.ToLower(string(log)), "attempting to acquire leader lease") {
			return
		}
		if time.Now().After(deadline) {
			s.T.Fatalf("%s does not wait for a Lease; its log is\n%s", name, log)
		}
	}
}

func (s *side) service(namespace, name string, annotations map[string]string) {
	s.addresses[namespace+"/"+name] = s.serve(s.namespace(namespace), name, annotations)
	s.endpoints(s.namespace(namespace), name, s.Servers...)
}

func (s *side) signal(server, namespace string, signal syscall.Signal) {
	s.T.Helper()
	key := server + "/" + namespace
	s.Must("signal kube-vip", s.Lab.Signal(s.T.Context(), s.processes[key], signal))
	if signal == syscall.SIGKILL { // revive leaves it dead
		delete(s.processes, key)
	}
}

// expect makes an expectation as of now.
func (s *side) expect(state, id, of string, nodes ...string) *expectation {
	return &expectation{version: s.version, state: state, id: id, address: s.addresses[of], nodes: nodes,
		since: time.Now()}
}

// others are all servers but one.
func (s *side) others(but string) []string {
	var names []string
	for _, server := range s.Servers {
		if server.Name != but {
			names = append(names, server.Name)
		}
	}
	return names
}

// begin starts kube-vip and creates Services that are announced as they should be.
func (s *side) begin() (want []*expectation) {
	for _, namespace := range []string{"stopped", "killed", "dead", "plain"} {
		s.announce(s.x, namespace)
	}
	s.announce(s.z, "deaf")
	for _, name := range []string{"stopped/web", "killed/web", "dead/web", "dead/gone", "plain/web", "plain/foreign",
		"plain/second", "plain/empty"} {
		namespace, service, _ := strings.Cut(name, "/")
		s.service(namespace, service, nil)
		want = append(want, s.expect(healthy, fine, name, s.x))
	}
	s.service("deaf", "web", nil)
	return append(want, s.expect(healthy, fine, "deaf/web", s.z))
}

// needsEndpoints reports whether this kube-vip announces an address only while its Service has endpoints.
func (s *side) needsEndpoints() bool {
	return version.MustParseGeneric(s.version).AtLeast(version.MustParseGeneric("1.2.0"))
}

// removeEndpoints takes the endpoints of a Service away, and creates one that has none.
func (s *side) removeEndpoints() (want []*expectation) {
	if !s.needsEndpoints() {
		return nil
	}
	s.endpoints(s.namespace("plain"), "empty")
	s.addresses["plain/never"] = s.serve(s.namespace("plain"), "never", nil)
	s.endpointless = []string{"empty", "never"}
	for _, name := range s.endpointless {
		want = append(want, s.expect("no endpoints: "+name, withoutEndpoints, "plain/"+name, s.others("")...))
	}
	return want
}

// explain does what the controller does when a Node reports that no machine answers: it writes that there are no
// endpoints.
func (s *side) explain(w *witness) {
	s.T.Helper()
	s.endpointless = slices.DeleteFunc(s.endpointless, func(name string) bool {
		silent := w.silent(s.addresses["plain/"+name])
		if silent {
			s.reportNoEndpoints(s.namespace("plain"), name)
		}
		return silent
	})
}

// breakAll makes every state but the missing return path.
func (s *side) breakAll(gatewayLink string) (want []*expectation) {
	s.announce(s.y, "stopped")
	s.announce(s.y, "killed")
	s.Sh(s.z, "echo 8 > /proc/sys/net/ipv4/conf/"+publicLink+"/arp_ignore")
	want = append(want, s.expect("the holder's kernel does not answer", "PN602", "deaf/web", s.others(s.z)...))
	s.service("plain", "side", map[string]string{contract.KubeVIPInterface: privateLink})
	want = append(want, s.expect("on the wrong interface", "PN605", "plain/side", s.x))
	s.service("unannounced", "web", nil)
	want = append(want, s.expect("kube-vip runs nowhere", "PN601", "unannounced/web", s.others(s.z)...))
	s.claim(lab.Gateway, gatewayLink, s.addresses["plain/foreign"])
	want = append(want, s.expect("a foreign machine claims it", "PN608", "plain/foreign", s.x))
	s.claim(s.y, publicLink, s.addresses["plain/second"])
	want = append(want, s.expect("a second Node claims it: there", "PN603", "plain/second", s.y),
		s.expect("a second Node claims it: the holder", "PN604", "plain/second", s.x))
	s.standsBy(s.y, "stopped")
	s.standsBy(s.y, "killed")
	s.signal(s.x, "stopped", syscall.SIGSTOP)
	want = append(want, s.expect("stopped (SIGSTOP): there", "PN603", "stopped/web", s.x),
		s.expect("stopped (SIGSTOP): the next holder", "PN604", "stopped/web", s.y))
	s.signal(s.x, "killed", syscall.SIGKILL)
	want = append(want, s.expect("killed (SIGKILL): there", "PN603", "killed/web", s.x),
		s.expect("killed (SIGKILL): the next holder", "PN604", "killed/web", s.y))
	s.signal(s.x, "dead", syscall.SIGKILL)
	want = append(want, s.expect("the lease expires", "PN609", "dead/web", s.x))
	s.deleteService(s.namespace("dead"), "gone")
	return append(want, s.expect("left behind by a Service that is gone", "PN603", "dead/gone", s.x))
}

// repair fixes what can be repaired.
func (s *side) repair(gatewayLink string) (want []*expectation) {
	s.signal(s.x, "stopped", syscall.SIGCONT)
	s.IP(lab.Gateway, "address", "delete", s.addresses["plain/foreign"].String()+"/32", "dev", gatewayLink)
	s.IP(s.y, "address", "delete", s.addresses["plain/second"].String()+"/32", "dev", publicLink)
	want = append(want, s.expect("goes on (SIGCONT)", fine, "stopped/web", s.y, s.x), // see wantReport
		s.expect("the foreign machine gives it up", fine, "plain/foreign", s.x),
		s.expect("the second Node gives it up", fine, "plain/second", s.x))
	if s.needsEndpoints() {
		s.endpoints(s.namespace("plain"), "empty", s.Servers...)
		want = append(want, s.expect("it has endpoints again", fine, "plain/empty", s.x))
	}
	return want
}

// TestStates: the agents name each state that kube-vip can be in. The usual run has one of the versions, by lot.
func TestStates(t *testing.T) {
	versions, err := tools.KubeVIPs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rand.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
	versions = versions[:min(seeds.Count(t, 1), len(versions))]
	h := newHarness(t, versions, 2*len(versions)+1)
	gatewayLink := h.gatewayLink()
	shared := h.Servers[2*len(versions)].Name
	w := newWitness(h)
	var sides []*side
	var want []*expectation
	w.meanwhile = func() {
		for _, s := range sides {
			s.heal(w)
		}
	}
	for i, tried := range versions {
		s := &side{harness: h, version: tried, x: h.Servers[2*i].Name, y: h.Servers[2*i+1].Name, z: shared,
			processes: map[string]int{}, addresses: map[string]netip.Addr{}, pause: startUp,
			patient: time.Now().Add(startUp)}
		sides = append(sides, s)
		begun := s.begin()
		w.await(begun, phaseLimit)
		want = append(want, begun...)
	}
	w.awaitHealthy(2 * phaseLimit)
	w.meanwhile = func() {
		for _, s := range sides {
			s.revive()
			s.explain(w)
		}
	}
	all := want
	for _, phase := range []func(*side) []*expectation{
		func(s *side) []*expectation { return s.breakAll(gatewayLink) },
		(*side).removeEndpoints,
		func(s *side) []*expectation { return s.repair(gatewayLink) },
		func(s *side) []*expectation {
			s.IP(s.x, "route", "replace", "default", "via", apiServer, "dev", privateLink)
			return []*expectation{s.expect("no way back", "PN606", "plain/web", s.x)}
		},
	} {
		w.forget()
		want = nil
		for _, s := range sides {
			want = append(want, phase(s)...)
		}
		w.await(want, phaseLimit)
		w.noErrors(want)
		all = append(all, want...)
	}
	w.wantReports(sides)
	fmt.Fprint(t.Output(), "\n"+header()+table(all)+figures(all))
	for _, e := range all {
		if took := e.took(); e.state != healthy && limits.Late(took, limit) {
			t.Errorf("%s: %s of %s was reported after %s, want it within %s", e.version, e.state, e.address, took,
				limit)
		}
	}
}

const (
	// limit is the time within which every state is named, and taken back.
	limit = 30 * time.Second
	// phaseLimit is how long the test waits for what it has made to happen.
	phaseLimit = 5 * time.Minute
)

// gatewayLink is the gateway's interface in the public network.
func (h *harness) gatewayLink() string {
	h.T.Helper()
	for deadline := time.Now().Add(limits.Wait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		for line := range strings.Lines(h.IP(lab.Gateway, "-4", "-o", "address")) {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasPrefix(fields[3], nodeGateway+"/") {
				return fields[1]
			}
		}
	}
	h.T.Fatal("the gateway has no interface with " + nodeGateway)
	return ""
}

// witness reads what the agents say, all the time: events on Services and conditions of Nodes.
type witness struct {
	*harness
	// meanwhile is done again and again while something is awaited.
	meanwhile func()

	mu     sync.Mutex
	seen   map[sighting]time.Time
	after  time.Time
	causes []sighting // that the conditions of Nodes name, and err: of the last look
	err    error
}

// newWitness begins to read; it ends with the test.
func newWitness(h *harness) *witness {
	w := &witness{harness: h, meanwhile: func() {}, seen: map[sighting]time.Time{}}
	ctx, cancel := context.WithCancel(h.T.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			err := w.look(ctx)
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	h.T.Cleanup(func() { cancel(); reading.Wait() })
	return w
}

// forget makes only what is said from now on count.
func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = map[sighting]time.Time{}
	w.after = time.Now()
}

var (
	findingOf = regexp.MustCompile(`PN\d+`)
	addressIn = regexp.MustCompile(`203\.0\.113\.\d+`)
)

// look reads once.
func (w *witness) look(ctx context.Context) error {
	events, err := w.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Service"})
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	nodes, err := w.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("read Nodes: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events.Items {
		// Times of events are in whole seconds.
		if e.LastTimestamp.Add(time.Second).Before(w.after) {
			continue
		}
		id := findingOf.FindString(e.Message)
		switch {
		case e.Reason == "AddressAnnounced":
			id = fine
		case strings.Contains(e.Message, "the Service has no endpoints"):
			id = withoutEndpoints
		}
		w.note(e.Source.Host, id, e.Message)
	}
	w.causes = nil
	for i := range nodes.Items {
		condition := contract.FindNodeCondition(&nodes.Items[i], contract.ConditionAnnouncementHealthy)
		if condition == nil || condition.Status != corev1.ConditionFalse {
			continue
		}
		for cause := range strings.SplitSeq(condition.Message, "; ") {
			w.causes = append(w.causes, w.note(nodes.Items[i].Name, findingOf.FindString(cause), cause))
		}
	}
	return nil
}

// note keeps when a finding was first seen, and returns it.
func (w *witness) note(node, id, text string) sighting {
	address, err := netip.ParseAddr(addressIn.FindString(text))
	key := sighting{node: node, id: id, address: address}
	if _, known := w.seen[key]; err == nil && id != "" && !known {
		w.seen[key] = time.Now()
	}
	return key
}

// await waits until all is seen that is wanted.
func (w *witness) await(want []*expectation, limit time.Duration) {
	w.T.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(500 * time.Millisecond) {
		w.meanwhile()
		missing := slices.DeleteFunc(slices.Clone(want), w.met)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.T.Fatalf("not reported within %s:\n%s(%v)", limit, table(missing), w.err)
		}
	}
}

// noErrors expects that no agent takes a Service without endpoints for a fault once it knows what the controller has
// found. On a busy machine the test, in place of the controller, can be later than the 2 s which it takes to confirm
// that no machine answers; such a fault has to be taken back.
func (w *witness) noErrors(all []*expectation) {
	w.T.Helper()
	for _, e := range all {
		if e.id != withoutEndpoints {
			continue
		}
		for deadline := time.Now().Add(phaseLimit); w.isFault(e); <-time.After(300 * time.Millisecond) {
			if time.Now().After(deadline) {
				w.T.Fatalf("%s: %s of %s is an error in the condition of a Node", e.version, e.state, e.address)
			}
		}
		w.mu.Lock()
		for s, at := range w.seen {
			knew, known := w.seen[sighting{node: s.node, id: withoutEndpoints, address: s.address}]
			if s.id == "PN601" && s.address == e.address && (limits.Held() || known && knew.Before(at)) {
				w.T.Errorf("%s: %s of %s was reported as an error by %s", e.version, e.state, e.address, s.node)
			}
		}
		w.mu.Unlock()
	}
}

// isFault reports whether the condition of a Node names the address of a Service as one for which no machine answers.
func (w *witness) isFault(e *expectation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.causes, func(s sighting) bool { return s.id == "PN601" && s.address == e.address })
}

func (w *witness) met(e *expectation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range e.nodes {
		if at, seen := w.seen[sighting{node: node, id: e.id, address: e.address}]; seen && e.seen.IsZero() {
			e.seen = at
			e.by = node
		}
	}
	return !e.seen.IsZero()
}

// awaitHealthy waits until every Node finds all addresses in order.
func (w *witness) awaitHealthy(limit time.Duration) {
	w.T.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(500 * time.Millisecond) {
		w.meanwhile()
		nodes, err := w.Kube.CoreV1().Nodes().List(w.T.Context(), metav1.ListOptions{})
		w.Must("read Nodes", err)
		var ill []string
		for i := range nodes.Items {
			if c := contract.FindNodeCondition(&nodes.Items[i], contract.ConditionAnnouncementHealthy); c == nil ||
				c.Status != corev1.ConditionTrue {
				ill = append(ill, fmt.Sprintf("%s: %+v", nodes.Items[i].Name, c))
			}
		}
		if len(ill) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.T.Fatalf("not healthy within %s: %s", limit, strings.Join(ill, "\n"))
		}
	}
}

// wantReports expects the holders of addresses to report them, with -hold in the time that a result may take.
func (w *witness) wantReports(sides []*side) {
	w.T.Helper()
	begun := time.Now()
	for _, s := range sides {
		w.wantReport(s, "plain")
		w.wantReport(s, "stopped")
	}
	if took := time.Since(begun); limits.Late(took, limit) {
		w.T.Errorf("the holders of addresses report them after %s, want it within %s", took, limit)
	}
}

// wantReport waits for the report of the Node that has the Lease. On a busy machine the one of two kube-vips that has
// it can lose it to the other.
func (w *witness) wantReport(s *side, namespace string) {
	w.T.Helper()
	address := s.addresses[namespace+"/web"]
	for deadline := time.Now().Add(phaseLimit); ; <-time.After(300 * time.Millisecond) {
		var entry contract.ReportedAddress
		holder := s.holder(namespace, "web")
		if holder != "" {
			entry = w.reportOf(holder, address)
		}
		if entry.Held && entry.State == contract.AddressAnswered && entry.MAC != "" {
			return
		}
		if time.Now().After(deadline) {
			w.T.Errorf("%s reports %+v of %s (%s/web), whose Lease it has", holder, entry, address, namespace)
			return
		}
	}
}

// holder is the Node that has kube-vip's Lease of a Service, or "" when it has been given back.
func (s *side) holder(namespace, service string) string {
	s.T.Helper()
	lease, err := s.Kube.CoordinationV1().Leases(s.namespace(namespace)).Get(s.T.Context(), "kubevip-"+service,
		metav1.GetOptions{})
	s.Must("read kube-vip's Lease", err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// silent reports whether a Node reports that no machine answers for an address.
func (w *witness) silent(address netip.Addr) bool {
	w.T.Helper()
	return slices.ContainsFunc(w.Servers, func(server lab.Server) bool {
		return w.reportOf(server.Name, address).State == contract.AddressSilent
	})
}

// reportOf is a Node's report of an address.
func (w *witness) reportOf(node string, address netip.Addr) contract.ReportedAddress {
	w.T.Helper()
	n, err := w.Kube.CoreV1().Nodes().Get(w.T.Context(), node, metav1.GetOptions{})
	w.Must("read Node", err)
	reported, err := contract.ParseReportedAddresses(n.Annotations[contract.NodeReportedAddresses])
	w.Must("read the report", err)
	return reported[address]
}

// took is the time from the state to its naming.
func (e *expectation) took() time.Duration { return e.seen.Sub(e.since) }

// figures are the longest times: until a state is named, and until it is taken back.
func figures(all []*expectation) string {
	var named, repaired time.Duration
	states := map[string]bool{}
	for _, e := range all {
		switch {
		case e.state == healthy:
		case e.id == fine:
			repaired = max(repaired, e.took())
		default:
			named = max(named, e.took())
			states[e.version+e.state] = true
		}
	}
	return fmt.Sprintf("figure kubevip_states_named %d states\nfigure kubevip_state_to_condition_max %.1f s\nfigure "+
		"kubevip_mended_to_condition_max %.1f s\n",
		len(states), named.Seconds(), repaired.Seconds())
}

// header names the columns of the table.
func header() string {
	return fmt.Sprintf("%-8s %-42s %-5s %-14s %s\n%s\n", "kube-vip", "state", "first", "address", "reported",
		strings.Repeat("-", 100))
}

// table prints expectations: state → finding → seconds.
func table(all []*expectation) string {
	var text strings.Builder
	for _, e := range all {
		took := "not seen"
		if !e.seen.IsZero() {
			took = fmt.Sprintf("%5.1f s by %s", e.seen.Sub(e.since).Seconds(), e.by)
		}
		fmt.Fprintf(&text, "%-8s %-42s %-5s %-14s %s\n", e.version, e.state, e.id, e.address, took)
	}
	return text.String()
}
