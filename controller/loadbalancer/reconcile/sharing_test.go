package reconcile_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// sharing gives a Service a key and one TCP port.
func sharing(key string, port int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		annotated(contract.ServiceSharedAddress, key)(s)
		s.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}}
	}
}

func local(selector string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Selector = map[string]string{"app": selector}
	}
}

// together demands that Services have one address, and that a ledger gives it to all of them.
func (w *world) together(names ...string) string {
	w.t.Helper()
	address := w.address(names[0])
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		w.t.Fatalf("Service %s has address %q", names[0], address)
	}
	for _, name := range names {
		if got := w.address(name); got != address {
			w.t.Errorf("Service %s has address %q, want %s", name, got, address)
		}
	}
	var held []string
	for _, l := range w.ledgers() {
		for _, h := range l.Holders(parsed) {
			held = append(held, h.Name)
		}
	}
	slices.Sort(held)
	if slices.Sort(names); !slices.Equal(held, names) {
		w.t.Errorf("the ledger gives %s to %q, want %q", address, held, names)
	}
	return address
}

func announcedBy(kind string) option {
	return configured(func(c *reconcile.Config) { c.Announcer = kind })
}

// TestServicesShareAnAddress: it is bought once, given to all, and free when the last one has left, in whatever order.
//
//proves:service-changes/shared-address
func TestServicesShareAnAddress(t *testing.T) {
	for name, order := range map[string][]string{"the first one first": {"web", "mail", "dns"},
		"the last one first": {"dns", "mail", "web"}, "the middle one first": {"mail", "web", "dns"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, announcedBy(contract.AnnouncerAgent))
			w.service("web", sharing("front", 443))
			w.service("mail", sharing("front", 25))
			w.service("dns", sharing("front", 53))
			w.settleAll("web", "mail", "dns")
			address := w.together("web", "mail", "dns")
			w.wantPurchases(1)
			left := []string{"web", "mail", "dns"}
			for _, name := range order {
				w.together(slices.Clone(left)...)
				w.delete(name)
				if took := w.settle(name); len(left) > 1 && took > time.Second {
					t.Errorf("%s waited %s for an address that others have", name, took)
				}
				left = slices.DeleteFunc(left, func(other string) bool { return other == name })
				w.passes(time.Minute)
				for _, other := range left {
					if got := w.address(other); got != address {
						t.Errorf("without %s, %s has address %q, want %s", name, other, got, address)
					}
				}
			}
			w.passes(time.Hour)
			w.wantBlocks()
			w.wantPurchases(1)
		})
	}
}

// TestANewcomerThatClashes is refused before anything is written or bought, and gets the address when that has ended.
//
//proves:service-changes/shared-address-conflict
func TestANewcomerThatClashes(t *testing.T) {
	for name, test := range map[string]struct {
		first, second, fixed func(*corev1.Service)
		says                 []string
	}{
		"a port": {sharing("front", 443), sharing("front", 443), sharing("front", 25),
			[]string{"Service shop/web has the address", "both have port 443/TCP: change", "choose another key"}},
		"Local beside Cluster": {sharing("front", 443), with(sharing("front", 25), local("web")), cluster,
			[]string{"Service shop/web", "only one of them has externalTrafficPolicy Local"}},
		"Local with another selector": {with(sharing("front", 443), local("web")), with(sharing("front", 25),
			local("mail")), local("web"), []string{"Service shop/web", "both need the same selector"}},
		"another requested address": {sharing("front", 443), with(sharing("front", 25),
			annotated(contract.ServiceRequestedIP, "203.0.113.12")), func(s *corev1.Service) {
			delete(s.Annotations, contract.ServiceRequestedIP)
		}, []string{"have address 203.0.113.10", "is 203.0.113.12", "clear that"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, announcedBy(contract.AnnouncerAgent))
			w.service("web", test.first)
			w.settle("web")
			before := w.ledgers()
			w.service("mail", test.second)
			err := w.refused("mail", time.Minute)
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) ||
					w.condition("mail").Reason != string(ipblock.AddressConflict) {
					t.Errorf("refusal is %q, %s, want %q", err, w.condition("mail").Reason, part)
				}
			}
			if events := w.eventsOf("AddressConflict"); len(events) != 1 {
				t.Errorf("events %q, want one", events)
			}
			w.wantPurchases(1)
			if after := w.ledgers(); len(after) != 1 || after[0].Version != before[0].Version {
				t.Errorf("the ledgers were written: %+v, %+v", before, after)
			}
			if w.address("mail") != "" {
				t.Errorf("it has address %s", w.address("mail"))
			}
			w.edit("mail", test.fixed)
			w.settle("mail")
			w.together("web", "mail")
		})
	}
}

func with(changes ...func(*corev1.Service)) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for _, change := range changes {
			change(s)
		}
	}
}

func cluster(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
}

// TestAnEditThatClashes takes the address from the later Service, whichever was edited, and gives it back.
//
//proves:service-changes/shared-address-edit
func TestAnEditThatClashes(t *testing.T) {
	for _, edited := range []string{"web", "mail"} {
		for _, kind := range []string{contract.AnnouncerAgent, contract.AnnouncerKubeVIP} {
			t.Run(edited+" with "+kind, func(t *testing.T) {
				w := newWorld(t, announcedBy(kind))
				w.service("web", sharing("front", 443))
				w.settle("web")
				w.clock.Advance(time.Minute)
				w.service("mail", sharing("front", 25), func(s *corev1.Service) {
					s.CreationTimestamp.Time = w.clock.Now()
				})
				w.settle("mail")
				address := w.together("web", "mail")
				w.edit(edited, sharing("front", map[string]int32{"web": 25, "mail": 443}[edited]))
				w.settle("web")
				w.wantDrifted("mail")
				said := w.refused("mail", time.Minute).Error()
				if !strings.Contains(said, "Service shop/web has the address of") ||
					len(w.eventsOf("AddressConflict")) != 1 {
					t.Errorf("it says %q, with another count of events than one", said)
				}
				mail := w.get("mail")
				for _, name := range []string{contract.ServiceIPAddress, contract.KubeVIPAddresses,
					contract.KubeVIPLease} {
					if mail.Annotations[name] != "" {
						t.Errorf("annotation %s=%s is left", name, mail.Annotations[name])
					}
				}
				if w.address("mail") != "" || mail.Spec.LoadBalancerIP != "" || w.together("web") != address {
					t.Errorf("mail has %q, %q and web %q", w.address("mail"), mail.Spec.LoadBalancerIP,
						w.address("web"))
				}
				for _, l := range w.ledgers() {
					if len(l.Quarantined) > 0 {
						t.Errorf("an address that another one has is in quarantine: %+v", l)
					}
				}
				w.edit(edited, sharing("front", map[string]int32{"web": 443, "mail": 25}[edited]))
				w.settleAll("web", "mail")
				if got := w.together("web", "mail"); got != address {
					t.Errorf("they have %s, want %s", got, address)
				}
				w.wantPurchases(1)
			})
		}
	}
}

// TestTheKeyChanges: who has an address without others may change the key; others would have to follow, so it is
// refused and the address stays.
//
//proves:service-changes/shared-address-key
func TestTheKeyChanges(t *testing.T) {
	for name, test := range map[string]struct {
		kind, before, after string
		beside              bool
		says                string
	}{
		"with others":                      {contract.AnnouncerAgent, "front", "back", true, "with Service shop/mail"},
		"removed, with others":             {contract.AnnouncerAgent, "front", "", true, "with Service shop/mail"},
		"without others":                   {contract.AnnouncerAgent, "front", "back", false, ""},
		"removed":                          {contract.AnnouncerAgent, "front", "", false, ""},
		"added":                            {contract.AnnouncerAgent, "", "back", false, ""},
		"without others, with kube-vip":    {contract.AnnouncerKubeVIP, "front", "back", false, ""},
		"added with kube-vip, which looks": {contract.AnnouncerKubeVIP, "", "back", false, "goes on with the Lease"},
		"to that of others":                {contract.AnnouncerAgent, "front", "other", false, "=other have"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, announcedBy(test.kind))
			w.service("web", inPool(), sharing(test.before, 443))
			w.service("other", sharing("other", 443))
			w.settleAll("web", "other")
			if test.beside {
				w.service("mail", sharing(test.before, 25))
				w.settle("mail")
			}
			address := w.address("web")
			w.edit("web", sharing(test.after, 443))
			if test.says == "" {
				w.settle("web")
			} else if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), "cannot be changed in place") {
				t.Errorf("refusal is %q, want %q", err, test.says)
			}
			if got := w.address("web"); got != address {
				t.Errorf("it has %q, want %s", got, address)
			}
			w.service("new", sharing("back", 22))
			w.settle("new")
			if same := w.address("new") == address; same != (test.after == "back" && test.says == "") {
				t.Errorf("a newcomer has %s, the Service %s", w.address("new"), address)
			}
		})
	}
}

// TestLostLedgerOfASharedAddress: it is made again with all who have the address.
func TestLostLedgerOfASharedAddress(t *testing.T) {
	w := newWorld(t, announcedBy(contract.AnnouncerAgent))
	w.service("web", sharing("front", 443))
	w.service("mail", sharing("front", 25))
	w.service("other", inPool())
	w.settleAll("web", "mail", "other")
	address := w.together("web", "mail")
	w.loseLedgers(contract.AllocationDedicated)
	w.settle("mail")
	if got := w.together("web", "mail"); got != address {
		t.Errorf("they have %s, want %s", got, address)
	}
	w.settleAll("web", "other")
	w.together("web", "mail")
	w.together("other")
	w.wantPurchases(1)
}

// TestLostLedgerAndAnotherKey: who was refused another key keeps the address with the others, whoever is first.
func TestLostLedgerAndAnotherKey(t *testing.T) {
	for _, key := range []string{"back", ""} {
		for _, first := range []string{"web", "mail"} {
			t.Run(first+" first, with "+key, func(t *testing.T) {
				w := newWorld(t, announcedBy(contract.AnnouncerAgent))
				w.service("web", sharing("front", 443))
				w.service("mail", sharing("front", 25))
				w.settleAll("web", "mail")
				address := w.together("web", "mail")
				w.edit("web", sharing(key, 443))
				_ = w.refused("web", time.Minute)
				w.loseLedgers(contract.AllocationDedicated)
				for _, name := range []string{first, "web", "mail"} {
					_, _ = w.sync(name)
					if got := w.together("web", "mail"); got != address {
						t.Errorf("they have %s, want %s", got, address)
					}
				}
				w.edit("web", sharing("front", 443))
				w.passes(time.Hour)
				w.together("web", "mail")
				w.wantPurchases(1)
			})
		}
	}
}

// TestKubeVIPElectsByTheAddress: with one Lease for all who have it, and none for one Service.
func TestKubeVIPElectsByTheAddress(t *testing.T) {
	w := newWorld(t)
	w.service("web", sharing("front", 443))
	w.service("mail", sharing("front", 25))
	w.service("single", inPool())
	w.settleAll("web", "mail", "single")
	address := w.together("web", "mail")
	for name, want := range map[string]string{"web": "kubevip-" + address, "mail": "kubevip-" + address, "single": ""} {
		if got := w.get(name).Annotations[contract.KubeVIPLease]; got != want {
			t.Errorf("Service %s has Lease %q, want %q", name, got, want)
		}
	}
	w.service("local", with(sharing("front", 22), local("web")))
	if err := w.refused("local", time.Minute); !strings.Contains(err.Error(), "kube-vip announces no shared address") {
		t.Errorf("refusal is %v", err)
	}
	w.edit("mail", func(s *corev1.Service) { delete(s.Annotations, contract.KubeVIPLease) })
	w.settle("mail")
	if got := w.get("mail").Annotations[contract.KubeVIPLease]; got != "kubevip-"+address {
		t.Errorf("a removed Lease is %q", got)
	}
	w.edit("mail", local("web"))
	if err := w.refused("mail", time.Minute); !strings.Contains(err.Error(), "set it to Cluster") ||
		w.address("mail") != "" {
		t.Errorf("an edit to Local: %v, address %s", err, w.address("mail"))
	}
	if !slices.Contains(w.drifted(), "mail") {
		t.Error("what it had is recorded still, and nothing is done about that")
	}
	_, _ = w.sync("mail")
	w.together("web")
}

// TestANewcomerIsHeldAgainstWhatTheAPIServerHas: the watch may not show yet who has the address.
func TestANewcomerIsHeldAgainstWhatTheAPIServerHas(t *testing.T) {
	w := newWorld(t, announcedBy(contract.AnnouncerAgent))
	first := w.service("web", sharing("front", 443))
	w.settle("web")
	w.service("mail", sharing("front", 443))
	if err := w.services.Delete(first); err != nil {
		t.Fatal(err)
	}
	if _, err := w.sync("mail"); err == nil || !strings.Contains(err.Error(), "both have port 443/TCP") {
		t.Errorf("it is not refused: %v", err)
	}
	w.together("web")
}

// TestCrashesWhileAnAddressIsShared ends the process at its first calls in each part of the life of two Services with
// one address: they never have it beside each other once they clash, and nothing is left of them.
func TestCrashesWhileAnAddressIsShared(t *testing.T) {
	for at := 1; at <= 16; at++ {
		w := newWorld(t, announcedBy(contract.AnnouncerAgent))
		w.service("web", sharing("front", 443))
		w.turns(at, "web")
		w.service("mail", sharing("front", 25), func(s *corev1.Service) { s.CreationTimestamp.Time = w.clock.Now() })
		w.turns(at, "web", "mail")
		w.together("web", "mail")
		w.edit("web", sharing("front", 25))
		w.turns(at, "mail", "web")
		w.together("web")
		if got := w.get("mail"); got.Annotations[contract.ServiceIPAddress] != "" ||
			len(got.Status.LoadBalancer.Ingress) > 0 {
			t.Errorf("crash %d: mail is %v", at, got)
		}
		w.edit("web", sharing("front", 443))
		w.turns(at, "web", "mail")
		w.together("web", "mail")
		w.delete("web")
		w.turns(at, "web", "mail")
		w.together("mail")
		w.delete("mail")
		w.turns(at, "mail")
		w.passes(10 * time.Minute)
		w.wantBlocks()
		w.wantPurchases(1)
	}
}

// turns syncs Services in turn for some minutes, in a process that dies at one of its calls.
func (w *world) turns(at int, names ...string) {
	w.crashAt = w.step + at
	for range 8 {
		for _, name := range names {
			_, _ = w.syncOrCrash(name)
		}
		w.clock.Advance(40 * time.Second)
		w.lookForDrift()
	}
	w.crashAt = 0
}
