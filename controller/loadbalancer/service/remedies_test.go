package service

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// warned is a Warning, what leads to it and what it advises.
type warned struct {
	config  Config
	objects []runtime.Object
	drive   func(*clocked)
	reason  string
	// advice is a part of the text, with the parameters of remedy.
	advice string
	remedy func(w *clocked, advised []string)
}

// kubeVIP takes up the published Services of a class, as kube-vip does that is configured for it.
func kubeVIP(w *clocked, class string, names ...string) {
	for _, name := range names {
		service := w.get(name)
		has := ""
		if service.Spec.LoadBalancerClass != nil {
			has = *service.Spec.LoadBalancerClass
		}
		if has == class {
			w.edit(name, annotated(contract.KubeVIPHost, "node-1"))
		}
	}
}

// createLike creates a Service again, under the name web, after a change.
func createLike(w *clocked, changes ...change) {
	w.edit("web", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	elapse(time.Minute)
	w.create("web", changes...)
}

func slicesOf(names ...string) []runtime.Object {
	var all []runtime.Object
	for _, name := range names {
		all = append(all, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		})
	}
	return all
}

// onNode changes the Node as kubectl does.
func onNode(change func(n *corev1.Node, advised []string)) func(*clocked, []string) {
	return func(w *clocked, advised []string) {
		editNode(w.t, w, func(n *corev1.Node) { change(n, advised) })
	}
}

func onService(change func(*corev1.Service)) func(*clocked, []string) {
	return func(w *clocked, _ []string) { w.edit("web", change) }
}

func serve(changes ...change) func(*clocked) {
	return func(w *clocked) { w.create("web", changes...) }
}

// warnings are the cases of the Warnings of this package that need no account.
func warnings() map[string]warned {
	dual := corev1.IPFamilyPolicyRequireDualStack
	single := corev1.IPFamilyPolicySingleStack
	excluded := func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }
	handsOver := func(n *corev1.Node) { n.Annotations[contract.NodeHandOver] = contract.TagTrue }
	unselected := func(n *corev1.Node) { delete(n.Labels, "edge") }
	byKubeVIP := Config{Announcer: contract.AnnouncerKubeVIP}
	ourClass := ofClass(contract.LoadBalancerClass)
	const proxy = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
	return map[string]warned{
		"excluded": {objects: []runtime.Object{nodeWith(excluded)}, drive: serve(), reason: eventUnavailable,
			advice: `Node (\S+) has .*\(kubectl label node (\S+) (\S+)-\)`,
			remedy: onNode(func(n *corev1.Node, advised []string) { delete(n.Labels, advised[3]) })},
		"handing over": {config: Config{Carriers: contract.Carriers{Announcer: contract.AnnouncerAgent}.Everywhere()},
			objects: []runtime.Object{nodeWith(handsOver)}, drive: serve(), reason: eventUnavailable,
			advice: `Node (\S+) hands .*\(kubectl annotate node (\S+) (\S+)-\)`,
			remedy: onNode(func(n *corev1.Node, advised []string) { delete(n.Annotations, advised[3]) })},
		"not selected": {config: Config{Carriers: ofEdge}, objects: []runtime.Object{nodeWith(unselected)},
			drive: serve(), reason: eventUnavailable, advice: `\(add the labels "([a-z]+)=([a-z]+)"\)`,
			remedy: onNode(func(n *corev1.Node, advised []string) { n.Labels[advised[1]] = advised[2] })},
		"two families": {drive: serve(func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &dual }),
			reason: eventUnsupported, advice: "set SingleStack",
			remedy: onService(func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &single })},
		"IPv6": {drive: serve(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
			reason: eventUnsupported, advice: `set ipFamilies to \[(IPv4)\]`,
			remedy: func(w *clocked, advised []string) {
				w.edit("web", func(s *corev1.Service) {
					s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPFamily(advised[1])}
				})
			}},
		"PROXY protocol": {drive: serve(annotated(proxy, "true")), reason: eventUnsupported,
			advice: `annotation (\S+)=.* remove the annotation`,
			remedy: func(w *clocked, advised []string) {
				w.edit("web", func(s *corev1.Service) { delete(s.Annotations, advised[1]) })
			}},
		"kube-vip without the class": {config: byKubeVIP, objects: slicesOf("web", "next"), drive: serve(ourClass),
			reason: eventIgnored, advice: `give kube-vip lb_class_name=([a-z./]+)`,
			remedy: func(w *clocked, advised []string) {
				w.create("next", ourClass)
				elapse(time.Second)
				kubeVIP(w, advised[1], "web", "next")
			}},
		"answered elsewhere": {objects: append(endpointsOn("web", "node-2"), nodeIn("node-1", "ASH", "n"),
			nodeIn("node-2", "PHX", "west")), drive: serve(), reason: eventFar,
			advice: `run pods in ([A-Z]+) as well`,
			remedy: func(w *clocked, _ []string) {
				w.moveEndpoints("web", "node-1")
				createLike(w)
			}},
		"answered in another network": {config: Config{NetworkIn: func(location string) string {
			return map[string]string{"PHX": "west"}[location]
		}}, objects: append(endpointsOn("web", "node-2"), nodeIn("node-1", "ASH", "n"),
			nodeIn("node-2", "PHX", "west")), drive: serve(), reason: eventFar, advice: `create it again with annotation ([a-z./]+): ([a-z]+)`,
			remedy: func(w *clocked, advised []string) { createLike(w, annotated(advised[1], advised[2])) }},
		"an interface that is not named after its VLAN": {
			config: Config{Announcer: contract.AnnouncerKubeVIP,
				Carriers: contract.Carriers{Network: "n", Announcer: contract.AnnouncerKubeVIP}.Everywhere()},
			objects: []runtime.Object{nodeWith(func(n *corev1.Node) {
				maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{Name: "west", ID: "n", VLAN: 57,
					Member: true}))
				n.Annotations[contract.NodeReportedIdentity] = `{"vlanInterfaces":{"n":{"name":"public"}}}`
			})}, drive: serve(), reason: eventUnavailable, advice: `\(name it (\S+), as docs/guides/network.md shows\)`,
			remedy: onNode(func(n *corev1.Node, advised []string) {
				n.Annotations[contract.NodeReportedIdentity] = `{"vlanInterfaces":{"n":{"name":"` + advised[1] + `"}}}`
			})},
		"a class that kube-vip does not serve": {config: byKubeVIP, objects: slicesOf("web"), drive: serve(ourClass),
			reason: eventIgnored, advice: "delete the Service and create it again without loadBalancerClass",
			remedy: func(w *clocked, _ []string) {
				createLike(w)
				elapse(time.Second)
				kubeVIP(w, "", "web")
			}},
	}
}

// TestWarningsEndByTheirRemedy does what a Warning says: then the Service is published, and no Warning follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	for name, test := range warnings() {
		t.Run(name, func(t *testing.T) {
			inTime(t, test.config, func(w *clocked) {
				test.drive(w)
				elapse(5 * time.Minute)
				advised := w.advised(test.reason, test.advice)
				test.remedy(w, advised)
				w.endsWarnings("web")
			}, test.objects...)
		})
	}
}

// advised returns what the Warnings of a reason advise.
func (w *clocked) advised(reason, advice string) []string {
	w.t.Helper()
	for _, event := range w.events.all() {
		if found := regexp.MustCompile(advice).FindStringSubmatch(event); found != nil &&
			strings.HasPrefix(event, "Warning "+reason+" ") {
			return found
		}
	}
	w.t.Fatalf("events %q, want a Warning %s that advises %s", w.events.all(), reason, advice)
	return nil
}

// endsWarnings demands that a Service is published, and that no Warning is sent for an hour, nor for another Service.
func (w *clocked) endsWarnings(name string) {
	w.t.Helper()
	elapse(2 * lastBackoff)
	before := len(w.events.all())
	w.create("another")
	elapse(time.Hour)
	if w.addressOf(name) == "" || w.addressOf("another") == "" {
		w.t.Errorf("after the remedy there is no address: %s", describe(w.get(name)))
	}
	for _, event := range w.events.all()[before:] {
		if strings.HasPrefix(event, "Warning ") && !strings.Contains(event, "the cluster has no Nodes") {
			w.t.Errorf("after the remedy there is the event %s", event)
		}
	}
}

// TestWebhookIsExcluded: SyncLoadBalancerFailed (eventSyncFailed) names the webhook that removes the finalizer; once it
// excludes Services, they are served.
func TestWebhookIsExcluded(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		var excluded atomic.Bool
		w.kube.PrependReactor("patch", "services", func(action ktesting.Action) (bool, runtime.Object, error) {
			name := action.(ktesting.PatchAction).GetName() //nolint:errcheck // of this verb
			return !excluded.Load(), w.get(name), nil
		})
		w.create("web")
		elapse(time.Minute)
		w.advised(eventSyncFailed, "exclude Services from the admission webhook")
		excluded.Store(true)
		w.endsWarnings("web")
	})
}

// TestScopesAreGiven: the client lost a scope, and DeleteLoadBalancerFailed (eventDeleteFailed) of a Service whose
// finalizer was removed names the scopes; with them its block goes.
func TestScopesAreGiven(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWithAccount(t)
	w.start()
	w.create("web")
	w.await("web", "published", isPublished)
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodDelete, Path: "/networks/v1/public-networks/*/ip-blocks/*",
		Times: -1, Action: pnapsim.FaultStatus, Status: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	w.delete("web")
	w.patch("web", `{"metadata":{"finalizers":null}}`)
	advice := regexp.MustCompile(`Warning ` + eventDeleteFailed + ` .*have the scopes `)
	w.await("web", "reported", func(*corev1.Service) bool {
		return advice.MatchString(strings.Join(w.events.all(), "\n"))
	})
	w.sim.Disarm()
	w.await("web", "without a block", func(*corev1.Service) bool { return w.blocks() == 0 })
	before := w.events.counts()["Warning "+eventDeleteFailed]
	w.create("next")
	w.await("next", "published", isPublished)
	w.delete("next")
	w.await("next", "gone", hasGone)
	if after := w.events.counts()["Warning "+eventDeleteFailed]; after != before {
		t.Errorf("after the remedy there are %d events more: %q", after-before, w.events.all())
	}
}
