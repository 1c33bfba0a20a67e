package allocation

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

const (
	blockID  = "60473a6115e34466c9f8f083"
	serverID = "60473c2509268bc77fd06d31"
)

var (
	sameAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	noon          = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// sample is a ledger with everything that one can say.
func sample() ipblock.Ledger {
	address := netip.MustParseAddr
	return ipblock.Ledger{
		BlockID: blockID, CIDR: netip.MustParsePrefix("203.0.113.8/29"), Closed: true,
		Nodes: true, Brought: true, AssignedHere: true, Version: "7",
		Held: map[netip.Addr]ipblock.Holder{
			address("203.0.113.10"): {Namespace: "shop", Name: "web", UID: "u1"},
			address("203.0.113.11"): {Name: serverID},
		},
		Quarantined: map[netip.Addr]ipblock.Released{
			address("203.0.113.12"): {Holder: ipblock.Holder{Namespace: "shop", Name: "api", UID: "u2"},
				Since: noon.Add(5 * time.Microsecond)},
			address("203.0.113.13"): {Holder: ipblock.Holder{Name: serverID}, Since: noon},
		},
	}
}

// encode is the object of a ledger that was never stored.
func encode(l ipblock.Ledger) *v1beta1.IPBlock {
	object := withLedger(newObject(l, "default"), l, noon)
	object.ResourceVersion = l.Version
	return object
}

func TestStoredFormStays(t *testing.T) {
	object := encode(sample())
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	const want = `metadata:
  name: block-60473a6115e34466c9f8f083
  resourceVersion: "7"
spec:
  attachment:
    kind: PublicNetwork
    name: default
  blockID: 60473a6115e34466c9f8f083
  purpose: Nodes
  source: Brought
status:
  allocations:
  - address: 203.0.113.10
    services:
    - name: web
      namespace: shop
      uid: u1
    since: "2026-03-01T12:00:00Z"
  - address: 203.0.113.11
    server: 60473c2509268bc77fd06d31
    since: "2026-03-01T12:00:00Z"
  assignedHere: true
  cidr: 203.0.113.8/29
  conditions:
  - lastTransitionTime: "2026-03-01T12:00:00Z"
    message: The block is being released
    reason: Closed
    status: "False"
    type: Allocatable
  gateway: 203.0.113.9
  quarantined:
  - address: 203.0.113.12
    services:
    - name: api
      namespace: shop
      uid: u2
    since: "2026-03-01T12:00:00.000005Z"
  - address: 203.0.113.13
    server: 60473c2509268bc77fd06d31
    since: "2026-03-01T12:00:00.000000Z"
  used: 2/5
`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("stored form (-want +got):\n%s", diff)
	}
	back, err := decode(object)
	if err != nil {
		t.Fatal(err)
	}
	stored := sample()
	stored.Object = object.Name
	if diff := cmp.Diff(stored, back, sameAddresses); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// TestSinceStaysWithTheHolder: who keeps an address has it since it was first stored.
func TestSinceStaysWithTheHolder(t *testing.T) {
	first := encode(sample())
	changed := sample()
	changed.Held[netip.MustParseAddr("203.0.113.14")] = ipblock.Holder{Namespace: "shop", Name: "dns", UID: "u3"}
	changed.Held[netip.MustParseAddr("203.0.113.10")] = ipblock.Holder{Namespace: "shop", Name: "web", UID: "u4"}
	changed.Closed = false
	later := noon.Add(time.Hour)
	second := withLedger(first, changed, later)
	since := map[string]time.Time{}
	for _, allocated := range *second.Status.Allocations {
		since[allocated.Address] = allocated.Since.UTC()
	}
	want := map[string]time.Time{"203.0.113.10": later, "203.0.113.11": noon, "203.0.113.14": later}
	if diff := cmp.Diff(want, since); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
	if c := second.Status.Conditions; len(c) != 1 || c[0].Status != metav1.ConditionTrue ||
		!c[0].LastTransitionTime.Time.Equal(later) {
		t.Errorf("conditions are %+v", c)
	}
}

// TestAGroupIsStored: who has an address together, in their order; the time stays while one of them has it.
func TestAGroupIsStored(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	others := []ipblock.Holder{{Namespace: "shop", Name: "mail", UID: "u5"}, {Namespace: "blog", Name: "dns",
		UID: "u6"}}
	want := sample().WithGroup(address, ipblock.Group{Name: "front", Others: others})
	object := encode(want)
	back, err := decode(object)
	want.Object = object.Name
	if diff := cmp.Diff(want, back, sameAddresses); err != nil || diff != "" {
		t.Errorf("read back %v (-want +got):\n%s", err, diff)
	}
	if !sameLedger(back, want) || sameLedger(back, sample()) {
		t.Error("the group makes no difference, or one that is stored differs")
	}
	left := want.Free(ipblock.Holder{Namespace: "shop", Name: "web"}, noon)
	later := withLedger(object, left, noon.Add(time.Hour))
	first := (*later.Status.Allocations)[0]
	if len(first.Services) != 2 || first.Services[0].Name != "mail" || !first.Since.Time.Equal(noon) {
		t.Errorf("without the first one: %+v", first)
	}
	left = left.Free(others[0], noon).Free(others[1], noon)
	if _, held := left.Held[address]; held || left.Quarantined[address].Holder != others[1] || len(left.Groups) > 0 {
		t.Errorf("without all: %+v", left)
	}
	ungrouped := object.DeepCopy()
	(*ungrouped.Status.Allocations)[0].SharedAs = ""
	if _, err := decode(ungrouped); err == nil || !strings.Contains(err.Error(), "belongs to 3 Services") {
		t.Errorf("several Services without a group: %v", err)
	}
}

// TestQuarantineIsNotStoredEarlier: a report of an agent counts if it is from after the release.
func TestQuarantineIsNotStoredEarlier(t *testing.T) {
	for _, late := range []time.Duration{0, 1, 999, 1000, 1001} {
		released := noon.Add(late)
		if kept := stored(released); kept.Before(released) || kept.UnixNano()-released.UnixNano() > 999 ||
			kept.Nanosecond()%1000 != 0 {
			t.Errorf("%s is stored as %s", released, kept)
		}
	}
}

// TestNothingIsRecordedWithoutAllocations: an interrupted creation and a restore without status leave such objects.
func TestNothingIsRecordedWithoutAllocations(t *testing.T) {
	object := encode(sample())
	object.Status.Allocations = nil
	if l, err := decode(object); err == nil || !strings.Contains(err.Error(), ErrNotFound.Error()) {
		t.Errorf("read %v, %v", l, err)
	}
}

// TestQuarantineOfUnknownHolders: a ledger that was made again has it.
func TestQuarantineOfUnknownHolders(t *testing.T) {
	object := encode(sample())
	object.Status.Quarantined[0].Services = nil
	l, err := decode(object)
	if err != nil {
		t.Fatal(err)
	}
	released := l.Quarantined[netip.MustParseAddr(object.Status.Quarantined[0].Address)]
	if released.Holder != (ipblock.Holder{}) || released.Since.IsZero() {
		t.Errorf("read %+v", released)
	}
	if again := encode(l); len(again.Status.Quarantined) != len(object.Status.Quarantined) {
		t.Errorf("written %+v", again.Status.Quarantined)
	}
}

func TestDamageIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(*v1beta1.IPBlock)
		want   string
	}{
		"no CIDR":              {func(b *v1beta1.IPBlock) { b.Status.CIDR = "" }, "status.cidr"},
		"a CIDR of IPv6":       {func(b *v1beta1.IPBlock) { b.Status.CIDR = "2001:db8::/64" }, "not a valid IPv4 block"},
		"a CIDR with a host":   {func(b *v1beta1.IPBlock) { b.Status.CIDR = "203.0.113.9/29" }, "not a valid IPv4 block"},
		"another block":        {func(b *v1beta1.IPBlock) { b.Name = "block-b" }, "it is the ledger of IP block"},
		"no block":             {func(b *v1beta1.IPBlock) { b.Spec.BlockID = "" }, "not a valid IPv4 block"},
		"no address":           {edit(func(a *v1beta1.Allocation) { a.Address = "web" }), "web"},
		"no host's address":    {edit(func(a *v1beta1.Allocation) { a.Address = "203.0.113.15" }), "203.0.113.15"},
		"an address twice":     {edit(func(a *v1beta1.Allocation) { a.Address = "203.0.113.11" }), "is there twice"},
		"no holder":            {edit(func(a *v1beta1.Allocation) { a.Services = nil }), "no Service and no server"},
		"a Service and server": {edit(func(a *v1beta1.Allocation) { a.Server = "s" }), `server "s"`},
		"two Services": {edit(func(a *v1beta1.Allocation) { a.Services = append(a.Services, a.Services[0]) }),
			"2 Services"},
		"a holder without a name": {edit(func(a *v1beta1.Allocation) { a.Services[0].Name = "" }), "without a name"},
		"a holder twice": {edit(func(a *v1beta1.Allocation) {
			a.Services = nil
			a.Server = serverID
		}), "holds 203.0.113."},
		"held and quarantined": {func(b *v1beta1.IPBlock) { b.Status.Quarantined[0].Address = "203.0.113.10" },
			"quarantined as well"},
		"quarantined for a Service and a server": {func(b *v1beta1.IPBlock) { b.Status.Quarantined[0].Server = "s" },
			"status.quarantined"},
	} {
		t.Run(name, func(t *testing.T) {
			object := encode(sample())
			test.damage(object)
			_, err := decode(object)
			if err == nil {
				t.Fatal("it was read")
			}
			for _, part := range []string{test.want, "IPBlock " + object.Name, "repair its status, or give it the"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

// edit changes the first allocation.
func edit(change func(*v1beta1.Allocation)) func(*v1beta1.IPBlock) {
	return func(b *v1beta1.IPBlock) { change(&(*b.Status.Allocations)[0]) }
}

// FuzzDecode: what is read keeps the rules, and is stored and read again as the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"cidr":"203.0.113.8/29","allocations":[{"address":"203.0.113.10","server":"x","since":null}]}`,
		`{"cidr":"203.0.113.8/29","allocations":[],"quarantined":[{"address":"203.0.113.10","server":"x","since":"2026-03-01T12:00:00.5+01:00"}]}`,
		`{"cidr":"::/0","allocations":[]}`, "null", "", `{"cidr":"203.0.113.9/29","allocations":null}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		object := newObject(ipblock.Ledger{BlockID: blockID}, "default")
		if json.Unmarshal([]byte(raw), &object.Status) != nil {
			return
		}
		read, err := decode(object)
		if err != nil {
			return
		}
		again, err := decode(encode(read))
		if err != nil {
			t.Fatalf("what was stored is not read: %v", err)
		}
		if !sameLedger(again, read) {
			t.Errorf("read again (-first +second):\n%s", cmp.Diff(read, again, sameAddresses))
		}
	})
}
