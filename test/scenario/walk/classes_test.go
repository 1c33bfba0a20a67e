package walk

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The classes of disturbances that come from outside: each must occur in a run of TestWalk.
const (
	// Lists are up to 30 minutes late: that of the blocks lacks new ones and keeps deleted ones, that of the servers
	// shows old states too. Look-ups by ID are current.
	classListLag   = "list_lag"
	classServerLag = "server_list_lag"
	// A list omits an object that its ID returns, or the ID of a listed object returns 404.
	classMismatch = "list_and_id_differ"
	// All ConfigMaps of the controller are deleted, and the defaults change.
	classLedgersLost = "ledgers_lost"
	// A Service has the record of a purchase in the past or the future, up to 100 years.
	classRecordTime = "purchase_record_time"
	// The cluster is restored from a backup that is up to 10 minutes old.
	classRestore = "etcd_restore"
	// Another cluster with its own controller uses the same public network.
	classSecondCluster = "second_cluster"
	// The Secret has the credentials of another account, or revoked ones, for up to 10 minutes.
	classWrongAccount = "wrong_account"
	// The leader stops for 1 s to 10 minutes at any request, and resumes beside its successor.
	classStoppedLeader = "stopped_leader"
	// The clock of a process is wrong by up to 6 hours.
	classClockSkew = "clock_skew"
	// A ConfigMap of the controller is deleted or damaged.
	classConfigMapEdit = "configmap_edit"
	// An IPBlock is deleted, with the annotation that allows it or by removing its finalizer, too; or it is damaged, or
	// restored without its status.
	classIPBlockEdit = "ipblock_edit"
	// A person orders a shared block, and gives it up after a while; or keeps one that was bought.
	classOrdered = "ordered_block"
	// For some minutes two IPBlocks name one block.
	classTwoObjects = "two_objects"
	// IPBlocks are restored from a backup of objects: under other UIDs, and without their status.
	classWithoutStatus = "restored_objects"
	// The definition of IPBlock is deleted with all of them, and applied again later.
	classUndefined = "definition_deleted"
	// Services are deleted, recreated or change their type while no controller runs, also without their finalizer.
	classWhileDown = "change_while_down"
	// The controller restarts with another default allocation or block size.
	classDefaults = "changed_defaults"
	// A purchase is executed up to 5 minutes after its request, whose answer is lost.
	classLatePurchase = "late_purchase"
	// 200 kB of annotations on a Service, or 25 Services at once.
	classAbsurd = "absurd_input"
	// The portal's user adds blocks to the network and removes them.
	classPortalBlock = "portal_block"
	// A block of the cluster is deleted in the portal, and another cluster buys the same addresses for the network.
	classResold = "block_resold"
	// Nodes are excluded from load balancers or cordoned, or their agents report a fault.
	classBarredNodes = "barred_nodes"
	// Services get keys with which they have one address, ports that clash or not, and are deleted in any order.
	classShared = "shared_addresses"
	// A server is replaced under the host name of a Ready Node.
	classReplacedServer = "replaced_server"
	// The cluster has a second public network, whose object goes and comes, as its members do.
	classNetworks = "networks"
)

// The times of the leader election, as the manifests set them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// classes counts what was injected, by class.
type classes struct {
	mu     sync.Mutex
	counts map[string]int
}

type classCount struct {
	name  string
	count int
}

func (c *classes) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[name]++
}

// list returns every class, those that never occurred included.
func (c *classes) list() []classCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []classCount{}
	for _, name := range slices.Concat(watchClasses, []string{
		classListLag, classServerLag, classMismatch, classWrongAccount, classStoppedLeader, classClockSkew,
		classConfigMapEdit, classIPBlockEdit, classOrdered, classUndefined, classLedgersLost, classRecordTime,
		classRestore, classTwoObjects, classWithoutStatus,
		classSecondCluster, classWhileDown, classDefaults, classLatePurchase, classAbsurd, classPortalBlock,
		classRetained, classHeaders, classUntagged,
		classWebhook, classFreshTag, classBarredNodes, classReplacedServer, classResold, classShared,
		classNetworks,
	}) {
		all = append(all, classCount{name, c.counts[name]})
	}
	return all
}

// injected is how many of the classes occurred.
func (c *classes) injected(names []string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	occurred := 0
	for _, name := range names {
		if c.counts[name] > 0 {
			occurred++
		}
	}
	return occurred
}

func (w *world) inject(class string) { w.count.classes.add(class) }

// keys are credentials of the API.
type keys struct{ id, secret string }

const strangerID = "stranger"

var (
	ownKeys     = keys{clientID, clientSecret}
	otherKeys   = keys{"stranger-client", "zT5mHn8Wq3Xc6Lk1"}
	revokedKeys = keys{clientID, "of before the rotation"}
)

// credentials returns what is in the Secret now.
func (w *world) credentials() (id, secret string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys.id, w.keys.secret, nil
}

func (w *world) use(k keys) {
	w.mu.Lock()
	w.keys = k
	w.mu.Unlock()
	w.sim.RevokeTokens(w.client)
	w.did("credentials are those of %s", k.id)
}

// upTo returns a random duration.
func (w *world) upTo(limit time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(limit)))
}

// wrongAccount puts the credentials of another account, or of none, into the Secret for a while.
func (w *world) wrongAccount() {
	w.inject(classWrongAccount)
	w.use([]keys{otherKeys, revokedKeys}[w.random.IntN(2)])
	time.AfterFunc(w.upTo(10*time.Minute), func() { w.use(w.own) })
}

// stopLeader stops the process at one of its next calls.
func (w *world) stopLeader() {
	p := w.process
	p.mu.Lock()
	defer p.mu.Unlock()
	limits := []time.Duration{15 * time.Second, 2 * time.Minute, 10 * time.Minute}
	p.pauseFor = time.Second + w.upTo(limits[w.random.IntN(len(limits))])
	w.did("the process stops soon, for %s", p.pauseFor)
}

// skew is by how much the clock of the next process is wrong.
func (w *world) skew() time.Duration {
	if !w.skews || w.process != nil && w.random.IntN(2) == 0 {
		return w.clock
	}
	w.inject(classClockSkew)
	skew := w.upTo(12*time.Hour) - 6*time.Hour
	w.did("the clock of the next process is wrong by %s", skew)
	return skew
}

// whileDown changes Services while no controller runs.
func (w *world) whileDown() {
	w.inject(classWhileDown)
	w.process.kill()
	w.did("no controller runs")
	for range 1 + w.random.IntN(3) {
		name := w.anyName()
		switch w.random.IntN(4) {
		case 0:
			w.remove(name)
		case 1:
			w.changeType()
		case 2:
			w.vanish(name)
			w.createClusterIP(name)
		default:
			w.vanish(name)
			w.create(name)
		}
	}
	time.Sleep(w.upTo(5 * time.Minute))
}

// vanish removes a Service with its finalizers, as an impatient user does.
func (w *world) vanish(name string) {
	w.edit(name, "its finalizers are removed", func(s *corev1.Service) { s.Finalizers = nil })
	w.abandon(name)
	w.remove(name)
}

func (w *world) createClusterIP(name string) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	services := w.kube.CoreV1().Services(namespace)
	if _, err := services.Create(w.t.Context(), service, metav1.CreateOptions{}); err == nil {
		w.did("Service %s is created without a load balancer", name)
	}
}

// editConfigMap damages a ConfigMap of the controller.
func (w *world) editConfigMap() {
	maps := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	list, err := maps.List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return
	}
	chosen := list.Items[w.random.IntN(len(list.Items))]
	w.inject(classConfigMapEdit)
	what := []string{"deleted", "garbage"}[w.random.IntN(2)]
	switch what {
	case "deleted":
		err = maps.Delete(w.t.Context(), chosen.Name, metav1.DeleteOptions{})
	default:
		for key := range chosen.Data {
			chosen.Data[key] = "{"
		}
		_, err = maps.Update(w.t.Context(), &chosen, metav1.UpdateOptions{})
		w.damaged = append(w.damaged, chosen.Name)
	}
	w.did("ConfigMap %s is %s: %v", chosen.Name, what, err)
}

// editIPBlock damages an IPBlock.
func (w *world) editIPBlock() {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return
	}
	chosen := list.Items[w.random.IntN(len(list.Items))].Name
	w.inject(classIPBlockEdit)
	what := []string{"deleted", "deleted with the annotation", "lost", "restored without its status",
		"damaged"}[w.random.IntN(5)]
	switch what {
	case "deleted":
		err = w.ipBlocks.Delete(w.t.Context(), chosen, metav1.DeleteOptions{})
	case "deleted with the annotation":
		err = kubefake.DeleteAllowed(w.t.Context(), w.ipBlocks, chosen)
	case "lost":
		err = kubefake.Lose(w.t.Context(), w.ipBlocks, chosen)
	case "damaged":
		err = kubefake.EditStatus(w.t.Context(), w.ipBlocks, chosen, func(s *v1beta1.IPBlockStatus) { s.CIDR = "" })
		w.damagedBlocks = append(w.damagedBlocks, chosen)
	default:
		err = kubefake.EditStatus(w.t.Context(), w.ipBlocks, chosen, func(s *v1beta1.IPBlockStatus) {
			*s = v1beta1.IPBlockStatus{}
		})
	}
	w.did("IPBlock %s is %s: %v", chosen, what, err)
}

// orderBlock orders a shared block until some time later, or keeps the first one that was bought for Services.
func (w *world) orderBlock() {
	w.inject(classOrdered)
	name := fmt.Sprintf("ordered-%d", w.random.IntN(3))
	size := []string{"/28", "/29", "/30", ""}[w.random.IntN(4)]
	_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBought, Purpose: v1beta1.PurposeShared, Size: size}},
		metav1.CreateOptions{})
	w.did("IPBlock %s orders a block %s: %v", name, size, err)
	keep := v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1"
	if kept, err := w.ipBlocks.Get(w.t.Context(), keep, metav1.GetOptions{}); err == nil && w.random.IntN(2) == 0 {
		kept.Spec.ReclaimPolicy = v1beta1.ReclaimRetain
		_, err := w.ipBlocks.Update(w.t.Context(), kept, metav1.UpdateOptions{})
		w.did("IPBlock %s is kept: %v", keep, err)
	}
	time.AfterFunc(w.upTo(time.Hour), func() {
		w.did("IPBlock %s is deleted: %v", name, w.ipBlocks.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	})
}

// secondObject has a person create an IPBlock for a block that the cluster has bought, and delete it some time later.
func (w *world) secondObject() {
	all := w.ours()
	if len(all) == 0 {
		return
	}
	w.inject(classTwoObjects)
	block := all[w.random.IntN(len(all))]
	w.seconds++
	name := fmt.Sprintf("second-%d", w.seconds)
	_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared, BlockID: block.id}},
		metav1.CreateOptions{})
	w.did("IPBlock %s is created for %s: %v", name, block, err)
	time.AfterFunc(w.upTo(10*time.Minute), func() {
		w.did("IPBlock %s is deleted: %v", name, w.ipBlocks.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	})
}

// deleteSeconds deletes what secondObject has left, and what a restore of etcd has brought back of that.
func (w *world) deleteSeconds() {
	for i := range w.seconds {
		err := w.ipBlocks.Delete(w.t.Context(), fmt.Sprintf("second-%d", i+1), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
}

// restoreObjects restores all IPBlocks as a backup of objects does: under other UIDs, and without their status.
func (w *world) restoreObjects() {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return
	}
	w.inject(classWithoutStatus)
	w.process.kill()
	for _, old := range list.Items {
		if err := kubefake.Lose(w.t.Context(), w.ipBlocks, old.Name); err != nil {
			w.t.Fatal(err)
		}
		_, err := w.ipBlocks.Create(w.t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: old.Name,
			Finalizers: old.Finalizers}, Spec: old.Spec}, metav1.CreateOptions{})
		w.did("IPBlock %s is restored without its status: %v", old.Name, err)
	}
}

// deleteIPBlocks deletes what records blocks that are bought, as a person does who wants to pay for nothing.
func (w *world) deleteIPBlocks() {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.fail("the IPBlocks cannot be listed: %v", err)
		return
	}
	for _, object := range list.Items {
		if object.Spec.Source != v1beta1.SourceBrought {
			w.did("IPBlock %s is deleted: %v", object.Name,
				w.ipBlocks.Delete(w.t.Context(), object.Name, metav1.DeleteOptions{}))
		}
	}
}

// undefine deletes the definition of IPBlock, past the policy that refuses it, allows that at once or later, and
// applies it again after a while.
func (w *world) undefine() {
	gvr := v1beta1.GroupVersion.WithResource("ipblocks")
	w.inject(classUndefined)
	length := w.upTo(10 * time.Minute)
	w.did("the definition of IPBlock is deleted, for %s: %v", length, w.store.Undefine(gvr))
	time.AfterFunc(length*time.Duration(w.random.IntN(2))/2, func() { w.store.AllowUndefine(gvr) })
	time.AfterFunc(length, func() { w.define(gvr) })
}

// define applies the definition, again and again while it is still being deleted.
func (w *world) define(gvr schema.GroupVersionResource) {
	if !w.store.Define(gvr) {
		time.AfterFunc(10*time.Second, func() { w.define(gvr) })
	}
}

// deleteDamaged does what the event about an unreadable record asks a person for.
func (w *world) deleteDamaged() {
	records := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for _, name := range w.damaged {
		one, err := records.Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil || !slices.Contains(slices.Collect(maps.Values(one.Data)), "{") {
			continue
		}
		if err := records.Delete(w.t.Context(), name, metav1.DeleteOptions{}); err == nil {
			w.did("ConfigMap %s is deleted by a person", name)
		}
	}
	for _, name := range w.damagedBlocks {
		one, err := w.ipBlocks.Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil || one.Status.CIDR != "" || one.Status.Allocations == nil {
			continue
		}
		if err := kubefake.DeleteAllowed(w.t.Context(), w.ipBlocks, name); err == nil {
			w.did("IPBlock %s is deleted by a person", name)
		}
	}
}

// defaults are options of the controller.
type defaults struct{ allocation, size string }

// changeDefaults restarts the controller with other options.
func (w *world) changeDefaults() {
	w.inject(classDefaults)
	w.defaults = defaults{
		allocation: []string{"", contract.AllocationDedicated, contract.AllocationShared}[w.random.IntN(3)],
		size:       []string{"", "/28", "/29", "/30"}[w.random.IntN(4)],
	}
	w.process.kill()
	w.did("the controller restarts with %+v", w.defaults)
}

// buyLate has the next purchase carried out long after its request, whose answer is lost.
func (w *world) buyLate() {
	late := w.upTo(5 * time.Minute)
	w.process.mu.Lock()
	w.process.late = late
	w.process.mu.Unlock()
	w.did("the next purchase is carried out %s late", late)
	// No other one has that name, nor is it a tenant of a pool, whatever the default is now: a purchase is due.
	w.createWith("late", map[string]string{contract.ServiceIPAllocation: contract.AllocationDedicated})
}

// absurd has annotations of absurd size and number, or an absurd number of Services.
func (w *world) absurd() {
	w.inject(classAbsurd)
	if w.random.IntN(3) == 0 {
		w.crowd()
		return
	}
	name := w.anyName()
	w.edit(name, "absurd annotations", func(s *corev1.Service) {
		for i := range 200 {
			s.Annotations[fmt.Sprintf("phoenixnap.com/ip-%s%d", strings.Repeat("x", 50), i)] = strings.Repeat("y", 1000)
		}
	})
	time.Sleep(time.Minute)
	w.edit(name, "ordinary annotations", func(s *corev1.Service) {
		maps.DeleteFunc(s.Annotations, func(key, _ string) bool { return strings.Contains(key, "xxx") })
	})
}

// crowd creates many Services at once, and deletes them after a while.
func (w *world) crowd() {
	const many = 25
	for i := range many {
		w.create(fmt.Sprintf("crowd-%d", i))
	}
	time.Sleep(w.upTo(5 * time.Minute))
	for i := range many {
		w.unretain(fmt.Sprintf("crowd-%d", i))
		w.remove(fmt.Sprintf("crowd-%d", i))
	}
}

// mismatch has lists omit an object that its ID shows, or an ID answer that the object of a list is not there. Where
// the list of blocks lags as well, only the network and the index of the tag show a block. Other trouble ends before:
// of a server there would be nothing left.
func (w *world) mismatch() {
	w.inject(classMismatch)
	w.sim.Disarm()
	const length = 3 * time.Minute
	w.mismatchEnds = time.Now().Add(length)
	lists := []string{blocksPath, "/bmc/v1/servers"}
	list := lists[w.random.IntN(len(lists))]
	fault := pnapsim.Fault{Method: http.MethodGet, Path: list, Action: pnapsim.FaultOmit, Element: w.random.IntN(4)}
	if w.random.IntN(2) == 0 {
		fault.Path = list + "/*"
		fault.Action = pnapsim.FaultStatus
		fault.Status = http.StatusNotFound
	}
	fault.Times = 1 + w.random.IntN(20)
	fault.For = pnapsim.Duration(length)
	w.arm(fault)
}

// loseLedgers deletes all ConfigMaps and IPBlocks of the controller and restarts it with other defaults.
func (w *world) loseLedgers() {
	w.inject(classLedgersLost)
	w.process.kill()
	maps := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	list, err := maps.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range list.Items {
		if err := maps.Delete(w.t.Context(), one.Name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.did("ConfigMap %s is lost", one.Name)
	}
	blocks, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.changeDefaults()
		return // their definition is deleted, too
	}
	for _, one := range blocks.Items {
		if err := kubefake.Lose(w.t.Context(), w.ipBlocks, one.Name); err != nil {
			w.t.Fatal(err)
		}
		w.did("IPBlock %s is lost", one.Name)
	}
	w.changeDefaults()
}

// recordPurchase changes the time of a recorded purchase, or records one for a Service that has none.
func (w *world) recordPurchase() {
	w.inject(classRecordTime)
	at := time.Now().Add([]time.Duration{
		-100 * 24 * time.Hour, -time.Hour, -time.Second, time.Hour, 24 * time.Hour, 100 * 365 * 24 * time.Hour,
	}[w.random.IntN(6)])
	name := w.anyName()
	service, err := w.kube.CoreV1().Services(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return
	}
	object := v1beta1.ServicePrefix + string(service.UID)
	err = kubefake.EditStatus(w.t.Context(), w.ipBlocks, object, func(s *v1beta1.IPBlockStatus) {
		s.Purchase = &v1beta1.Purchase{Attempt: 1 + int32(w.random.IntN(9)), Time: metav1.NewMicroTime(at)}
	})
	if apierrors.IsNotFound(err) {
		record := allocation.ForService(w.ipBlocks, v1beta1.DefaultNetwork, plan.HolderOf(service), nil)
		_, err = record.Begin(w.t.Context(), at, purchase.DefaultSize)
	}
	terminating := apierrors.IsForbidden(err) // the definition
	if err != nil && !apierrors.IsConflict(err) && !client.Undefined(err) && !terminating {
		w.t.Fatal(err)
	}
	w.did("purchase of %s recorded at %s", name, at)
}

// backUp saves etcd, to be restored soon: what is restored is from before or after the last changes.
func (w *world) backUp() {
	if !w.restoreAt.IsZero() {
		return
	}
	w.backup = w.store.Snapshot()
	w.restoreAt = time.Now().Add(w.upTo(10 * time.Minute))
	w.did("etcd is saved, to be restored at %s", w.restoreAt.Format(time.TimeOnly))
}

// restoreEtcd brings the saved state of the cluster back while no controller runs.
func (w *world) restoreEtcd() {
	w.inject(classRestore)
	w.restoreAt = time.Time{}
	w.restoredAt = time.Now()
	w.process.kill()
	for _, p := range append(w.stopped, w.process) {
		p.kill()
	}
	for _, service := range w.services() {
		w.abandon(service.Name)
	}
	synctest.Wait()
	if err := w.store.Restore(w.backup); err != nil {
		w.t.Fatal(err)
	}
	w.did("etcd is restored")
	gvr := v1beta1.GroupVersion.WithResource("ipblocks") // whose definition may have been there, gone or on its way
	w.store.AllowUndefine(gvr)
	w.define(gvr)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observer.published = map[types.UID]string{}
	for _, service := range w.services() {
		w.observer.touched[service.UID] = true
	}
}

// abandon notes that a Service disappears without the controller.
func (w *world) abandon(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned[contract.TagService+"="+contract.ServiceTag(namespace, name)] = true
}

// portalAdds has the portal's user add a block to the network, or remove one that was added.
func (w *world) portalAdds() {
	added := slices.DeleteFunc(w.blocks(), func(b block) bool { return b.tags["team"] != "portal" })
	w.inject(classPortalBlock)
	if len(added) >= 3 {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: added[0].id})
		return
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: networkID, Tags: map[string]string{"team": "portal"}})
}

// buyerCluster is the ID of the cluster that buys what was sold before. It runs elsewhere.
const buyerCluster = "0d4f7c11-98a6-4b57-8c3e-2f6b1a9e5d70"

// resold are the blocks that it bought.
func (w *world) resold() []block {
	return slices.DeleteFunc(w.blocks(), func(b block) bool { return b.tags[contract.TagCluster] != buyerCluster })
}

// resell deletes a block of the cluster, whose addresses another cluster buys, or deletes such a block. Sometimes the
// Services that had them are restored afterwards.
func (w *world) resell() {
	if sold := w.resold(); len(sold) > 0 {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: sold[0].id})
		return
	}
	b, found := w.anyBlock()
	if !found {
		return
	}
	w.inject(classResold)
	if w.random.IntN(2) == 0 {
		w.backUp()
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: b.id})
	tags := maps.Clone(b.tags)
	tags[contract.TagCluster] = buyerCluster
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: networkID, CIDR: b.cidr, Tags: tags})
}

// judgeResold: no Service keeps an address that another cluster bought.
func (w *world) judgeResold() {
	for _, b := range w.resold() {
		cidr, err := netip.ParsePrefix(b.cidr)
		if err != nil {
			w.t.Fatal(err)
		}
		if b.status != "assigned" {
			w.fail("a block that another cluster bought is %s", b)
		}
		for _, service := range w.services() {
			address, err := netip.ParseAddr(addressOf(&service))
			if err == nil && cidr.Contains(address) {
				w.count.twice.Add(1)
				w.fail("Service %s keeps %s, which another cluster bought with %s: %v", service.Name, address, b,
					service.Status.Conditions)
			}
		}
	}
}
