package walk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const (
	clusterUID   = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"
	otherCluster = "7c0a5a0e-55a2-4d3c-8f57-6a1d2b3c4d5e"
	networkID    = "60473c2509268bc77fd06d29"
	nodeBlockID  = "60473c2509268bc77fd06d41"
	broughtID    = "60473c2509268bc77fd06d40"
	location     = "ASH"
	accountID    = "walk"
	clientID     = "walk-client"
	clientSecret = "pR7sKw2Vn9Qy4Hb6"
	namespace    = "shop"
	blocksPath   = "/ips/v1/ip-blocks"
	orphanGrace  = 10 * time.Minute
	// collapse is within what time a block too many must be gone.
	collapse = 5 * time.Minute
)

// counts are what a walk found, summed up over all walks.
type counts struct {
	seeds, faults, leaked, stale, doubles, extra, collapsed, twice, nodesLost, published, purchases, fenced atomic.Int64
	// taken are changes that take the block of a published address away, lost are addresses that a Service lost without
	// a reason, deposed are changes by a process that is deposed, stuck are Services without an address or a reason, or
	// that cannot be deleted.
	taken, lost, deposed, stuck atomic.Int64
	// futile are blocks that were bought while no Node could carry the traffic.
	futile atomic.Int64

	classes classes
	// busiest is how many calls a process made in a minute, unassigned and unused are seconds, see observer.
	busiest, unassigned, unused maximum
}

// maximum is the highest of its values.
type maximum struct{ atomic.Int64 }

func (m *maximum) raise(value int64) {
	for before := m.Load(); value > before && !m.CompareAndSwap(before, value); before = m.Load() {
	}
}

// world is an account, a cluster and the life of a controller between them.
type world struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	sim     *pnapsim.Sim
	handler http.Handler
	store   *kubefake.Store
	lags    map[string]kubefake.Lag // by resource, of the watches of the processes
	kube    kubernetes.Interface    // the users' client
	// ipBlocks are the objects, for users.
	ipBlocks *client.IPBlocks
	events   *events
	// uid is the ID of the cluster, client the ID of its API client, own its credentials.
	uid, client string
	own         keys
	nodes       int  // how many there are at first
	collect     bool // orphans
	manages     bool // memberships
	several     bool // public networks
	latencies   pnapsim.Latency
	// rate is the limit of requests a second to the API of phoenixNAP; 0 is none.
	rate int
	// crowded reports that there are so many Services that a process may make more than maxCalls in a minute.
	crowded bool
	// defaults are the options of the controller that a restart may change. skews reports whether clocks are wrong.
	defaults defaults
	skews    bool
	// keys are the credentials in the Secret now.
	keys    keys
	count   *counts
	process *process

	mu sync.Mutex
	// extras are the owners for which a stopped process bought a block too many. late are the blocks that stopped
	// processes bought, by ID: such a purchase cannot be prevented.
	extras map[string]bool
	late   map[string]lateBlock
	thaws  []time.Time
	// seen are the purchases that were judged.
	seen map[string]bool
	// published are the addresses that Services had, with their UIDs.
	published map[string]bool
	// history is what was done, to explain how a walk ended.
	history []string
	// reported are addresses whose double use was reported.
	reported map[string]bool
	// stopped are processes that stood still when another one took over.
	stopped []*process
	// keysOf are the keys that each Service has had, with which it has its address together with others.
	keysOf map[types.UID]map[string]bool
	// abandoned are the owners whose Service disappeared without the controller: their blocks may be reported only.
	abandoned map[string]bool
	// webhook is what a webhook removes from updates; empty for nothing. excess reports that too many retained blocks
	// were reported.
	webhook string
	excess  bool
	// damaged are the ConfigMaps and IPBlocks that a user made unreadable.
	damaged, damagedBlocks []string
	// mismatchEnds is when lists and IDs agree again.
	mismatchEnds time.Time
	// backup is a snapshot of the cluster, restoreAt is when it is restored. restoredAt is when the last was: a status
	// that came back may name an address that another Service has by now, until the controller has looked.
	backup                kubefake.Snapshot
	restoreAt, restoredAt time.Time
	observer              *observer
	// neighbour is another cluster on the same network, nil in most walks.
	neighbour *world
	// parent is the world of which this is the neighbour.
	parent *world
	// nodesLate is until when the process learns late of Nodes after the last lag.
	nodesLate time.Time
	// seconds is how many IPBlocks were created for blocks that others name.
	seconds int
	// heard is called with each request of a process before it has an effect; nil in walks.
	heard func(*http.Request)
	// answered is called with each answer of Kubernetes to a process; nil in walks.
	answered func(*http.Request, *http.Response)
	// clock is by how much the clocks of processes are wrong where that is not drawn.
	clock time.Duration
	// maxBlocks is how many blocks the controller may buy; 0 is no limit.
	maxBlocks int
	// calming reports that the trouble is over.
	calming atomic.Bool
	// calmedAt is since when.
	calmedAt time.Time
}

func newWorld(t *testing.T, seed uint64, count *counts, specs *pnapsim.Specs) *world {
	w := emptyWorld(t, seed, count)
	w.latencies = w.latency()
	w.simulate(pnapsim.RandomSwitches(w.random), specs)
	return w
}

// newCluster is a cluster in which nothing has happened, of no account.
func newCluster() *world {
	return &world{
		store: kubefake.NewStore(), events: &events{reasons: map[string]int{}}, observer: newObserver(),
		extras: map[string]bool{}, late: map[string]lateBlock{}, seen: map[string]bool{},
		published: map[string]bool{}, reported: map[string]bool{}, abandoned: map[string]bool{},
		lags: map[string]kubefake.Lag{}, keysOf: map[types.UID]map[string]bool{},
	}
}

// emptyWorld is a world without an account.
func emptyWorld(t *testing.T, seed uint64, count *counts) *world {
	w := newCluster()
	w.t = t
	w.seed = seed
	w.random = rand.New(rand.NewPCG(seed, 0x77616c6b))
	w.count = count
	w.uid = clusterUID
	w.client = clientID
	w.own = ownKeys
	w.collect = w.random.IntN(2) == 0
	drawn := w.random.IntN(2) == 0
	w.manages = drawn || w.seed == 0 // which damages a ConfigMap: that is the record of members
	w.skews = w.seed%3 == 2
	w.keys = w.own
	w.nodes = 1 + w.random.IntN(maxServers)
	return w
}

// simulate gives the world its account and its namespaces.
func (w *world) simulate(switches pnapsim.Switches, specs *pnapsim.Specs) {
	latency := w.latencies
	w.sim = pnapsim.New(pnapsim.Config{
		Clock: pnapsim.NewRealClock(1), Latency: &latency, Switches: switches, Specs: specs, RandomSeed: w.seed,
	})
	if err := w.sim.Seed(seedAccount(w.nodes)); err != nil {
		w.t.Fatal(err)
	}
	w.handler = w.sim.Handler()
	w.found()
}

func (w *world) make(object *corev1.Namespace) {
	if _, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(), object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) latency() pnapsim.Latency {
	latency := pnapsim.DefaultLatency()
	upTo := func(limit time.Duration) pnapsim.Duration { return pnapsim.Duration(w.random.Int64N(int64(limit))) }
	latency.BlockCreate = upTo(10 * time.Second)
	latency.Assign = upTo(2 * time.Minute)
	latency.Unassign = upTo(2 * time.Minute)
	latency.TagPropagation = upTo(20 * time.Second)
	latency.ListLag = upTo(10 * time.Second)
	if w.seed%3 == 0 {
		latency.ListLag = upTo(30 * time.Minute)
		w.inject(classListLag)
	}
	if w.seed%4 == 1 {
		latency.ServerListLag = upTo(30 * time.Minute)
		latency.NetworkListLag = latency.ServerListLag
		w.inject(classServerLag)
	}
	return latency
}

func serverID(i int) string { return fmt.Sprintf("60473c2509268bc77fd06e%02x", i) }

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// maxServers is how many servers the account has at the most; Nodes come and go among them.
const maxServers = 10

// seedAccount has a network with the nodes' own block and a brought one, and blocks of others that must not be touched.
func seedAccount(servers int) pnapsim.Seed {
	seed := pnapsim.AccountSeed{
		ID: accountID,
		Clients: []pnapsim.ClientSeed{
			clientSeed(ownKeys, clusterUID), clientSeed(keys{neighbourClient, neighbourSecret}, neighbourUID),
		},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: location, VLAN: 20},
			{ID: westID, Name: west, Location: location, VLAN: 21}},
		Blocks: []pnapsim.BlockSeed{
			{ID: nodeBlockID, Name: "nodes", Location: location, CIDR: "198.51.100.0/28", Network: networkID},
			{ID: westNodeBlockID, Name: "nodes of west", Location: location, CIDR: "198.51.100.224/28", Network: westID},
			{ID: broughtID, Name: "brought", Location: location, CIDR: "198.51.100.16/29",
				Grants: []string{"assign", "unassign"}},
			{Name: "of another cluster", Location: location, CIDR: "198.51.100.32/29", Tags: map[string]string{
				contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: otherCluster,
				contract.TagService: namespace + "_a",
			}},
			{Name: "of no one", Location: location, CIDR: "198.51.100.40/29"},
		},
	}
	seed.Blocks = append(seed.Blocks, untouchable()...)
	own := netip.MustParseAddr("198.51.100.2")
	for i := range servers {
		server := pnapsim.ServerSeed{
			ID: serverID(i), Hostname: nodeName(i), Location: location, NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{fmt.Sprintf("10.0.0.%d", 11+i)},
			Networks:   []pnapsim.MembershipSeed{{Network: networkID, IPs: []string{own.String()}}},
		}
		switch i {
		case 4:
			server.ReservationID = "60473c2509268bc77fd06f00" // it lives on when it is deprovisioned
		case 2, 3:
			server.Networks = nil // to be joined, where memberships are managed
		}
		seed.Servers = append(seed.Servers, server)
		own = own.Next()
	}
	seed.Servers = append(seed.Servers, pnapsim.ServerSeed{
		ID: serverID(neighbourServer), Hostname: nodeName(neighbourServer), Location: location,
		NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.111"},
		Networks: []pnapsim.MembershipSeed{{Network: networkID, IPs: []string{own.String()}}},
	})
	stranger := pnapsim.AccountSeed{ID: strangerID,
		Clients: []pnapsim.ClientSeed{{ID: otherKeys.id, Secret: otherKeys.secret}}}
	return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{seed, stranger}}
}

// did notes what happened.
func (w *world) did(format string, args ...any) {
	if w.parent != nil {
		w.parent.did("neighbour: "+format, args...)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail notes a violation; its history is printed at the end of the walk.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	if w.parent != nil {
		w.parent.fail("neighbour: "+format, args...)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Errorf("seed %d: %s: %s", w.seed, time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	w.history = append(w.history, "FAILED: "+fmt.Sprintf(format, args...))
}

// block is one of the account as its owner sees it.
type block struct {
	id, status, cidr string
	tags             map[string]string
	// ours reports that it has our tags, foreign that it is none that a client bought, whatever its tags.
	ours, foreign bool
}

func (b block) owner() string {
	for _, name := range []string{contract.TagService, contract.TagPool} {
		if value := b.tags[name]; value != "" {
			return name + "=" + value
		}
	}
	return ""
}

func (b block) String() string { return fmt.Sprintf("%s %s %s %v", b.id, b.cidr, b.status, b.tags) }

// blocks are all of the account.
func (w *world) blocks() []block {
	var all []block
	for _, raw := range w.sim.State(accountID).Blocks {
		b := block{id: text(raw["id"]), status: text(raw["status"]), cidr: text(raw["cidr"]), tags: map[string]string{}}
		for _, tag := range objects(raw["tags"]) {
			b.tags[text(tag["name"])] = text(tag["value"])
		}
		b.foreign = raw["parentIpBlockAllocationId"] != nil || raw["isSystemManaged"] == true
		b.ours = b.tags[contract.TagUsage] == contract.TagUsageAuto && b.tags[contract.TagCluster] == w.uid &&
			!b.foreign
		all = append(all, b)
	}
	return all
}

// ours are the blocks that have our tags.
func (w *world) ours() []block {
	return slices.DeleteFunc(w.blocks(), func(b block) bool { return !b.ours })
}

// judgePurchase holds a purchase against what the account had before. A stopped process cannot know what its successor
// did meanwhile: what it bought too many has to go.
func (w *world) judgePurchase(before []block, stopped bool) {
	if stopped {
		w.thawed()
	}
	for _, bought := range w.ours() {
		if slices.ContainsFunc(before, func(b block) bool { return b.id == bought.id }) || !w.isNew(bought.id) {
			continue
		}
		w.count.purchases.Add(1)
		if !stopped {
			w.judgeCarriers(bought)
		}
		w.did("bought %s", bought)
		if stopped {
			w.mu.Lock()
			w.late[bought.id] = lateBlock{cidr: bought.cidr, at: time.Now()}
			w.mu.Unlock()
		}
		for _, b := range before {
			if !b.ours || b.owner() != bought.owner() || strings.HasPrefix(bought.owner(), contract.TagPool) {
				continue
			}
			if stopped || w.unlisted(b.id) {
				w.mu.Lock()
				w.extras[bought.owner()] = true
				w.mu.Unlock()
				w.count.extra.Add(1)
			} else {
				w.count.doubles.Add(1)
				w.fail("a second purchase for %s: %s beside %s", bought.owner(), bought, b)
			}
			break
		}
	}
}

// lateBlock is a block that was bought without anyone hearing of it, or by a process that was stopped: when that was.
type lateBlock struct {
	cidr string
	at   time.Time
}

// hidesAt reports whether the list of the account may not have shown the block to a process that bought at a time: what
// it looked at last was some seconds old.
func (b lateBlock) hidesAt(bought time.Time, lag time.Duration) bool {
	return !bought.Before(b.at) && bought.Sub(b.at) < lag+15*time.Second
}

// unlisted reports whether a block came so late, and so short a while ago, that no process can know of it.
func (w *world) unlisted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late[id].hidesAt(time.Now(), time.Duration(w.latencies.ListLag))
}

// thawed notes that a stopped process goes on.
func (w *world) thawed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.thaws = append(w.thaws, time.Now())
}

// isNew reports whether a purchase was not checked yet.
func (w *world) isNew(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[id]
	w.seen[id] = true
	return !known
}

// judgeDeletion compares the deletion of a Node that a process is about to make with the account.
func (w *world) judgeDeletion(request *http.Request) {
	name, isNode := strings.CutPrefix(request.URL.Path, "/api/v1/nodes/")
	if request.Method != http.MethodDelete || !isNode {
		return
	}
	node, err := w.store.Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
	if err != nil {
		return
	}
	deleted, isNode := node.(*corev1.Node)
	if !isNode {
		return
	}
	id, err := contract.ParseProviderID(deleted.Spec.ProviderID)
	if err != nil {
		w.count.nodesLost.Add(1)
		w.fail("Node %s is deleted, whose provider ID is %q", name, deleted.Spec.ProviderID)
		return
	}
	falsehoods, err := w.sim.Claim(pnapsim.Claim{Client: w.client, Kind: pnapsim.ClaimServerGone, Server: id})
	if err != nil || len(falsehoods) > 0 {
		w.count.nodesLost.Add(1)
		w.fail("Node %s is deleted: %v %v", name, falsehoods, err)
		return
	}
	w.did("Node %s is deleted", name)
}

// services are those of the cluster.
func (w *world) services() []corev1.Service {
	list, err := w.kube.CoreV1().Services(namespace).List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// events counts what users are shown, by reason, and keeps what they read about orphans.
type events struct {
	mu      sync.Mutex
	reasons map[string]int
	orphans []string
	// misled are refusals whose remedy does not fit: no user can do anything about a new tag.
	misled []string
}

func (e *events) Event(_ runtime.Object, _, reason, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons[reason]++
	if reason == "IPBlockRefused" && strings.Contains(text, "does not exist") {
		e.misled = append(e.misled, text)
	}
	if reason == "OrphanedIPBlock" {
		e.orphans = append(e.orphans, text)
	}
}

func (e *events) has(reason string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reasons[reason] > 0
}

// reports whether an event said that a block is paid for without use.
func (e *events) reports(blockID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.orphans, func(text string) bool { return strings.Contains(text, blockID) })
}

func (e *events) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (e *events) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	e.Eventf(object, kind, reason, format, args...)
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func objects(value any) []map[string]any {
	var all []map[string]any
	list, _ := value.([]any)
	for _, each := range list {
		if o, isObject := each.(map[string]any); isObject {
			all = append(all, o)
		}
	}
	return all
}
