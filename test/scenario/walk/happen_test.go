package walk

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// happen does one thing, of users, of the portal's user, of phoenixNAP, of the machines or of the process's fate.
func (w *world) happen() {
	things := []struct {
		weight int
		do     func()
	}{
		{8, w.createService}, {4, w.deleteService}, {2, w.recreateService}, {2, w.changeType}, {3, w.vandalise},
		{2, w.editWish},
		{2, w.portalDeletes}, {2, w.portalUnassigns}, {1, w.networkBusy}, {8, w.trouble}, {2, w.outage}, {1, w.revoke},
		{3, w.nodeTurns}, {2, w.serverGoes}, {2, w.serverTurns}, {6, w.die}, {2, w.freeze},
		{2, w.wrongAccount}, {4, w.stopLeader}, {2, w.whileDown}, {2, w.editConfigMap}, {3, w.editIPBlock}, {1, w.undefine},
		{2, w.orderBlock}, {1, w.secondObject}, {1, w.restoreObjects},
		{2, w.changeDefaults},
		{2, w.buyLate}, {1, w.absurd}, {2, w.portalAdds}, {2, w.mismatch}, {1, w.loseLedgers}, {2, w.recordPurchase},
		{2, w.backUp}, {4, w.neighbourActs}, {2, w.churn}, {2, w.absurdHeader}, {3, w.hideTags}, {1, w.interfere},
		{4, w.nodeIsBarred}, {1, w.serverIsReplaced}, {2, w.watchIsLate}, {2, w.watchStandsStill}, {1, w.watchBreaks},
		{1, w.watchExpires}, {2, w.resell}, {3, w.shareAddresses},
	}
	total := 0
	for _, thing := range things {
		total += thing.weight
	}
	at := w.random.IntN(total)
	for _, thing := range things {
		if at -= thing.weight; at < 0 {
			thing.do()
			return
		}
	}
}

// force does one of the things that must occur in a few walks already.
func (w *world) force(turn int) {
	things := []func(){
		w.wrongAccount, w.stopLeader, w.whileDown, w.editConfigMap, w.editIPBlock, w.undefine, w.orderBlock,
		w.loseLedgers, w.secondObject, w.restoreObjects,
		w.recordPurchase, w.backUp, w.changeDefaults, w.interfere, w.absurd, w.portalAdds, w.mismatch, w.neighbourActs,
		w.die, w.churn, w.absurdHeader, w.hideTags, w.buyLate, w.nodeIsBarred, w.serverIsReplaced,
		w.watchIsLate, w.watchStandsStill, w.watchBreaks, w.watchExpires, w.resell,
		w.shareAddresses,
	}
	things[(int(w.seed)*forced+turn)%len(things)]()
}

// names are those of the Services; one is as long as a name may be.
var names = []string{"a", "b", "c", "d", "e", strings.Repeat("n", 63)}

func (w *world) anyName() string { return names[w.random.IntN(len(names))] }

func (w *world) createService() { w.create(w.anyName()) }

func (w *world) create(name string) { w.createWith(name, w.wish()) }

func (w *world) createWith(name string, annotations map[string]string) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: w.toWest(name, annotations)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{portOf(name)}},
	}
	if w.random.IntN(5) == 0 {
		class := contract.LoadBalancerClass
		service.Spec.LoadBalancerClass = &class
	}
	created, err := w.kube.CoreV1().Services(namespace).Create(w.t.Context(), service, metav1.CreateOptions{})
	if err == nil {
		w.noteKey(created)
		w.did("Service %s is created: %v", name, service.Annotations)
	} else if !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// wish is how a user wants the address, in any of the ways that there are.
func (w *world) wish() map[string]string {
	wishes := []map[string]string{
		nil, nil, nil,
		{contract.ServiceIPAllocation: contract.AllocationShared},
		{contract.ServiceIPAllocation: contract.AllocationShared},
		{contract.ServiceIPAllocation: contract.AllocationShared},
		{contract.ServiceIPBlockSize: "/28"}, {contract.ServiceIPBlockSize: "/30"},
		{contract.ServiceIPRetain: "true"},
		{contract.ServiceIPBlock: broughtObject},
		{contract.ServiceIPReplace: "true"},
		{contract.ServiceSharedAddress: sharedKeys[0]},
		{contract.ServiceIPBlockSize: "/99"},
	}
	chosen := map[string]string{}
	for name, value := range wishes[w.random.IntN(len(wishes))] {
		chosen[name] = value
	}
	return chosen
}

func (w *world) deleteService() { w.remove(w.anyName()) }

func (w *world) remove(name string) {
	err := w.kube.CoreV1().Services(namespace).Delete(context.WithoutCancel(w.t.Context()), name,
		metav1.DeleteOptions{})
	if err == nil {
		w.did("Service %s is deleted", name)
	} else if !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

func (w *world) recreateService() {
	name := w.anyName()
	w.remove(name)
	time.Sleep(time.Duration(w.random.Int64N(int64(90 * time.Second))))
	w.create(name)
}

// edit changes a Service as a user does, if it exists.
func (w *world) edit(name, what string, change func(*corev1.Service)) {
	services := w.kube.CoreV1().Services(namespace)
	service, err := services.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return
	}
	if service.Annotations == nil {
		service.Annotations = map[string]string{}
	}
	w.noteKey(service)
	change(service)
	w.noteKey(service)
	w.mu.Lock()
	w.observer.touched[service.UID] = true
	w.mu.Unlock()
	w.touchClashing(service)
	if _, err := services.Update(w.t.Context(), service, metav1.UpdateOptions{}); err != nil {
		w.did("Service %s is not edited: %v", name, err)
		return
	}
	w.did("Service %s is edited: %s", name, what)
}

// changeType turns a Service into one without a load balancer, or back. The API server takes the class away with the
// type.
func (w *world) changeType() {
	w.edit(w.anyName(), "type", func(s *corev1.Service) {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			s.Spec.Type = corev1.ServiceTypeClusterIP
			s.Spec.LoadBalancerClass = nil
		} else {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
		}
	})
}

// vandalise changes what only the controller may write.
func (w *world) vandalise() {
	values := []string{"", "198.51.100.1", "203.0.113.10", "203.0.113.11", "true", "{", "198.51.100.34"}
	names := []string{
		contract.ServiceIPAddress, contract.ServiceIPBlockCIDR, contract.ServiceIPGateway,
		contract.ServiceIPBlockAssigned, contract.KubeVIPAddresses,
	}
	name := names[w.random.IntN(len(names))]
	value := values[w.random.IntN(len(values))]
	w.edit(w.anyName(), name+"="+value, func(s *corev1.Service) {
		if value == "" {
			delete(s.Annotations, name)
		} else {
			s.Annotations[name] = value
		}
	})
}

// editWish changes what a user may write, sensibly or not.
func (w *world) editWish() {
	wish := w.wish()
	w.edit(w.anyName(), fmt.Sprint("wish ", wish), func(s *corev1.Service) {
		for _, name := range []string{
			contract.ServiceIPAllocation, contract.ServiceIPBlockSize, contract.ServiceIPRetain,
			contract.ServiceIPBlock, contract.ServiceIPReplace, contract.ServiceSharedAddress,
		} {
			delete(s.Annotations, name)
		}
		for name, value := range wish {
			s.Annotations[name] = value
		}
	})
}

// unretain lets the block of a Service go with it.
func (w *world) unretain(name string) {
	w.edit(name, "not retained", func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPRetain) })
}

// anyBlock is one of ours, if there is one.
func (w *world) anyBlock() (block, bool) {
	all := w.ours()
	if len(all) == 0 {
		return block{}, false
	}
	return all[w.random.IntN(len(all))], true
}

func (w *world) portal(edit pnapsim.Edit) {
	for _, b := range w.blocks() {
		if b.id == edit.Block {
			w.moves(b, edit.Kind == pnapsim.EditDeleteBlock)
		}
	}
	if err := w.sim.OutOfBand(edit); err != nil {
		w.did("the portal refuses: %v", err)
		return
	}
	w.did("the portal's user: %+v", edit)
}

// moves notes that the portal's user changes a block, or deletes it.
func (w *world) moves(b block, deletes bool) {
	services := w.services()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observer.moved[b.cidr] = true
	for _, service := range services {
		if address := addressOf(&service); deletes && address != "" && within(address, b.cidr) {
			w.observer.stale[service.UID] = address
		}
	}
}

func (w *world) portalDeletes() {
	if b, found := w.anyBlock(); found {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: b.id})
	}
}

func (w *world) portalUnassigns() {
	if b, found := w.anyBlock(); found {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: b.id})
	}
}

// networkBusy has others change the network for a while.
func (w *world) networkBusy() {
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID, Status: "BUSY"})
	time.Sleep(time.Duration(w.random.Int64N(int64(2 * time.Minute))))
	w.ready()
}

func (w *world) ready() {
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID})
}

func (w *world) arm(f pnapsim.Fault) {
	if err := w.sim.Arm(f); err != nil {
		w.t.Fatal(err)
	}
	w.did("fault: %s %s %s %d %s, %d times", f.Method, f.Path, f.Action, f.Status, f.Outcome, f.Times)
}

// trouble damages a few requests of one kind.
func (w *world) trouble() {
	if time.Now().Before(w.mismatchEnds) {
		return
	}
	const anyBlock, assignments = blocksPath + "/*", "/networks/v1/public-networks/*/ip-blocks"
	places := []pnapsim.Fault{
		{Method: http.MethodPost, Path: blocksPath}, {Method: http.MethodPost, Path: blocksPath},
		{Method: http.MethodGet, Path: blocksPath},
		{Method: http.MethodGet, Path: anyBlock}, {Method: http.MethodDelete, Path: anyBlock},
		{Method: http.MethodPost, Path: assignments},
		{Method: http.MethodDelete, Path: assignments + "/*"},
		{Method: http.MethodGet, Path: "/networks/v1/public-networks/*"},
		{Path: "/tag-manager/v1/tags"}, {Method: http.MethodGet, Path: "/bmc/v1/servers"},
		{Method: http.MethodGet, Path: "/bmc/v1/servers/*"},
		{Path: "/auth/realms/BMC/protocol/openid-connect/token"},
	}
	actions := []pnapsim.Fault{
		{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 503},
		{Action: pnapsim.FaultStatus, Status: 409},
		{Action: pnapsim.FaultStatus, Status: 401}, {Action: pnapsim.FaultStatus, Status: 403},
		{Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 11},
		{Action: pnapsim.FaultHTML}, {Action: pnapsim.FaultReset}, {Action: pnapsim.FaultLost},
		{Action: pnapsim.FaultLost}, {Action: pnapsim.FaultEmpty},
		{Action: pnapsim.FaultTruncate}, {Action: pnapsim.FaultDropField, Field: "id", Element: w.random.IntN(3)},
		{Action: pnapsim.FaultHang},
		{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError},
		{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeLate, Delay: pnapsim.Duration(2 * time.Minute)},
	}
	f := places[w.random.IntN(len(places))]
	action := actions[w.random.IntN(len(actions))]
	f.Action = action.Action
	f.Status = action.Status
	f.RetryAfter = action.RetryAfter
	f.Outcome = action.Outcome
	f.Delay = action.Delay
	f.Field = action.Field
	f.Element = action.Element
	f.Times = 1 + w.random.IntN(3)
	w.arm(f)
}

// outage fails all that is asked of an API, or everything, for two minutes.
func (w *world) outage() {
	if time.Now().Before(w.mismatchEnds) {
		return
	}
	paths := []string{"", "/bmc/v1/servers", "/bmc/v1/servers/*", blocksPath}
	statuses := []int{401, 403, 429, 500, 503}
	w.arm(pnapsim.Fault{
		Path: paths[w.random.IntN(len(paths))], Action: pnapsim.FaultStatus,
		Status: statuses[w.random.IntN(len(statuses))], RetryAfter: 5,
		Times: -1, For: pnapsim.Duration(2 * time.Minute),
	})
}

func (w *world) revoke() {
	w.sim.RevokeTokens(w.client)
	w.did("tokens are revoked")
}

// register creates a Node as its kubelet does, if it is not there.
func (w *world) register(i int) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: w.interfaces(),
			Labels: map[string]string{corev1.LabelHostname: nodeName(i)}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider,
			Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}},
	}
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// nodeTurns makes a Node not ready, or ready again.
func (w *world) nodeTurns() {
	name := nodeName(w.random.IntN(w.nodes))
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return
	}
	words := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
	status := words[w.random.IntN(len(words))]
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if _, err := w.kube.CoreV1().Nodes().UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{}); err == nil {
		w.did("Node %s is ready: %s", name, status)
	}
}

// serverGoes deprovisions a server; its kubelet falls silent.
func (w *world) serverGoes() {
	i := w.random.IntN(w.nodes)
	if w.random.IntN(3) > 0 {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: serverID(i)})
	}
	w.silence(i)
}

func (w *world) silence(i int) {
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), nodeName(i), metav1.GetOptions{})
	if err != nil {
		return
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if _, err := w.kube.CoreV1().Nodes().UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{}); err == nil {
		w.did("Node %s is silent", node.Name)
	}
}

// serverTurns gives a server another status: none of them means that it is gone.
func (w *world) serverTurns() {
	words := []string{"powered-on", "powered-off", "error", "rebooting", "reinstating", "being-teleported"}
	i := w.random.IntN(w.nodes)
	word := words[w.random.IntN(len(words))]
	w.portal(pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: serverID(i), Status: word})
}

// die has the process end before or after one of its next calls.
func (w *world) die() {
	w.process.mu.Lock()
	defer w.process.mu.Unlock()
	w.process.dieAt = w.process.steps + 1 + w.random.IntN(12)
	w.did("the process dies soon")
}

// freeze stops the process at its next purchase, for longer than its lease.
func (w *world) freeze() {
	w.process.mu.Lock()
	defer w.process.mu.Unlock()
	w.process.freeze = 30*time.Second + time.Duration(w.random.Int64N(int64(2*time.Minute)))
	w.did("the process stops at its next purchase, for %s", w.process.freeze)
}
