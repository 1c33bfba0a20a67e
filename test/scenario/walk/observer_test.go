package walk

import (
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// observeEvery is how often an observer compares the cluster with the account.
const observeEvery = 10 * time.Second

// observer sees what happens between the looks of a walk.
type observer struct {
	done chan struct{}
	// published are the addresses of the last observation.
	published map[types.UID]string
	// touched are the Services that a user changed, and moved the blocks that the portal's user did: theirs may change.
	touched map[types.UID]bool
	moved   map[string]bool
	// stale are addresses whose blocks the portal's user deleted while a Service published them: until it does not any
	// more, a block that is bought with the same addresses is not its own.
	stale map[types.UID]string
	// carried is when a Node could carry traffic the last time.
	carried time.Time
	// unused is since when a block is paid for without use.
	unused map[string]time.Time
}

func newObserver() *observer {
	return &observer{
		done: make(chan struct{}), published: map[types.UID]string{}, touched: map[types.UID]bool{},
		moved: map[string]bool{}, stale: map[types.UID]string{}, unused: map[string]time.Time{},
	}
}

func (o *observer) stop() { close(o.done) }

// observe looks until the walk ends.
func (w *world) observe() {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.observer.done:
			return
		case <-ticker.C:
			for _, cluster := range w.clusters() {
				cluster.observeCarriers()
				cluster.observeAddresses()
				cluster.observeUse()
			}
		}
	}
}

// addressOf is what a Service publishes.
func addressOf(service *corev1.Service) string {
	if ingress := service.Status.LoadBalancer.Ingress; len(ingress) > 0 {
		return ingress[0].IP
	}
	return ""
}

// observeAddresses reports addresses that Services lost although no user changed the Service or its block.
func (w *world) observeAddresses() {
	services := w.services()
	w.mu.Lock()
	before := w.observer.published
	w.observer.published = map[types.UID]string{}
	w.mu.Unlock()
	for _, service := range services {
		address := addressOf(&service)
		w.mu.Lock()
		w.observer.published[service.UID] = address
		if w.observer.stale[service.UID] != address {
			delete(w.observer.stale, service.UID)
		}
		lost := before[service.UID] != "" && address != before[service.UID] && service.DeletionTimestamp == nil &&
			service.Spec.Type == corev1.ServiceTypeLoadBalancer && !w.observer.touched[service.UID] &&
			!w.wasMoved(before[service.UID])
		w.mu.Unlock()
		if lost {
			w.count.lost.Add(1)
			w.fail("Service %s had %s, and has %q: %v", service.Name, before[service.UID], address,
				service.Status.Conditions)
		}
	}
}

// wasMoved reports whether the portal's user changed the block of an address. It is called with the lock held.
func (w *world) wasMoved(address string) bool {
	for cidr := range w.observer.moved {
		if within(address, cidr) {
			return true
		}
	}
	return false
}

func within(address, cidr string) bool {
	ip, err := netip.ParseAddr(address)
	prefix, wrong := netip.ParsePrefix(cidr)
	return err == nil && wrong == nil && prefix.Contains(ip)
}

// observeUse measures in the calm how long a block is paid for that no network has.
func (w *world) observeUse() {
	if !w.calming.Load() {
		return
	}
	now := time.Now()
	idle := map[string]time.Time{}
	for _, b := range w.ours() {
		if b.status == "assigned" || b.tags[contract.TagRetain] == contract.TagTrue || w.isReported(b) {
			continue
		}
		idle[b.id] = now
		if since, known := w.observer.unused[b.id]; known {
			idle[b.id] = since
		}
		unused := now.Sub(idle[b.id])
		w.count.unused.raise(int64(unused.Seconds()))
		if limit := w.patience(); unused > limit && unused <= limit+observeEvery {
			w.fail("%s is paid for without use for more than %s; Services wait for %v; the account has %v", b, limit,
				w.explanations(), w.ours())
		}
	}
	w.observer.unused = idle
}

// isStale reports whether the portal's user deleted the block of what a Service publishes.
func (w *world) isStale(service *corev1.Service) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	address := addressOf(service)
	return address != "" && w.observer.stale[service.UID] == address
}

// excuseNothing ends the excuse of addresses whose blocks were deleted: by now each has been withdrawn.
func (w *world) excuseNothing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.observer.stale)
}

// explanations are why Services have no address, by their names.
func (w *world) explanations() map[string]string {
	reasons := map[string]string{}
	for _, service := range w.services() {
		if addressOf(&service) == "" {
			reasons[service.Name] = explanation(&service)
		}
	}
	return reasons
}

// publishers are the Services that publish an address of a block, and are to go on with that.
func (w *world) publishers(b block) []string {
	var names []string
	for _, service := range w.services() {
		if service.DeletionTimestamp != nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		if address := addressOf(&service); address != "" && within(address, b.cidr) && !w.isStale(&service) {
			names = append(names, service.Name+"="+address)
		}
	}
	return names
}

// judgeChange holds a change that is about to be carried out against what is published.
func (w *world) judgeChange(p *process, request *http.Request) {
	if p.isDeposed() && strings.Contains(request.URL.Path, "/v1/") {
		w.count.deposed.Add(1)
		w.fail("a process that is deposed: %s %s", request.Method, request.URL.Path)
	}
	if request.Method != http.MethodDelete || !strings.Contains(request.URL.Path, "/ip-blocks/") {
		return
	}
	for _, b := range w.ours() {
		if b.id != path.Base(request.URL.Path) || b.status == "unassigned" || b.status == "error assigning" {
			continue // no network has it: to be assigned again after an error, it has to be unassigned
		}
		names := w.publishers(b) //nolint:contextcheck // the observer's view does not end with the request
		if len(names) > 0 {
			w.count.taken.Add(1)
			w.fail("%s %s, of which %v is published", request.Method, request.URL.Path, names)
		}
	}
}

// drift has the portal's user unassign a block in the calm, and measures for how long its addresses stay published.
func (w *world) drift() {
	for _, b := range w.ours() {
		if b.status != "assigned" || len(w.publishers(b)) == 0 {
			continue
		}
		w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: b.id})
		began := time.Now()
		for len(w.publishers(b)) > 0 && !w.isAssigned(b.id) && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		w.count.unassigned.raise(int64(time.Since(began).Seconds()))
		if limit := driftEvery + time.Duration(w.latencies.Assign) + driftMargin; time.Since(began) > limit {
			w.fail("an address of %s was published for %s without the block, at most %s is right", b, time.Since(began),
				limit)
		}
		time.Sleep(5 * time.Minute)
		return
	}
}

const (
	// driftEvery is how often the controller compares Services with the account.
	driftEvery = time.Minute
	// driftMargin is the time of the requests and their pauses.
	driftMargin = 30 * time.Second
)

func (w *world) isAssigned(blockID string) bool {
	for _, b := range w.ours() {
		if b.id == blockID {
			return b.status == "assigned"
		}
	}
	return false
}
