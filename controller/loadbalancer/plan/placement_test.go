package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// place is a network with some blocks of 203.0.<third>.0/24.
func place(name, location string, third, blocks int) Place {
	public := network.Network{ID: "id-" + name, Location: location}
	for i := range blocks {
		public.Blocks = append(public.Blocks, network.ListedBlock{ID: fmt.Sprint(name, i),
			CIDR: netip.MustParsePrefix(fmt.Sprintf("203.0.%d.%d/29", third, 8*i))})
	}
	return Place{Named: network.Named{Name: name, ID: public.ID}, Public: public}
}

// placed is a Service with annotations.
func placed(uid string, pairs ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid),
		Annotations: map[string]string{}}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for i := 0; i < len(pairs); i += 2 {
		s.Annotations[pairs[i]] = pairs[i+1]
	}
	return s
}

// addressed is a Service that has an address.
func addressed(address string, pairs ...string) *corev1.Service {
	s := placed("u1", pairs...)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	return s
}

func TestChoose(t *testing.T) {
	const (
		network  = contract.ServiceNetwork
		location = contract.ServiceIPLocation
	)
	ash := place("default", "ASH", 113, 3)
	phx := place("west", "PHX", 114, 2)
	full := place("west-full", "PHX", 115, 10)
	all := []Place{ash, full, phx}
	records := ipblock.Records{
		{Name: "svc-u2", Network: "west", Service: ipblock.Holder{Namespace: "shop", Name: "own", UID: "u2"}},
		{Name: "west-shared-1", Network: "west", Holders: []ipblock.Holder{{Namespace: "shop", Name: "pooled", UID: "u3"}},
			Groups: []string{"shop/front"}},
		{Name: "mail", Network: "west"},
		{Name: "svc-u4", Network: "gone", Service: ipblock.Holder{Namespace: "shop", Name: "stranded", UID: "u4"}},
		{Name: "default-shared-1", Network: "default", Report: ipblock.Report{CIDR: netip.MustParsePrefix("198.51.100.0/29")}},
	}
	named := func(s *corev1.Service, name string) *corev1.Service { s.Name = name; return s }
	for name, tc := range map[string]struct {
		service *corev1.Service
		served  []Place
		partial bool
		without bool // the annotation of a location means nothing
		want    string
		says    []string
	}{
		"nothing asked":               {service: placed("u1"), want: "default"},
		"by name":                     {service: placed("u1", network, "west"), want: "west"},
		"by name with blanks":         {service: placed("u1", network, " west "), want: "west"},
		"by name before the location": {service: placed("u1", network, "default", location, "PHX"), want: "default"},
		"the full one by name":        {service: placed("u1", network, "west-full"), want: "west-full"},
		"an unknown name": {service: placed("u1", network, "east"), says: []string{"east", network, "default (ASH)",
			"west (PHX)", "create PublicNetwork"}},
		"an unknown name before all were read": {service: placed("u1", network, "east"), partial: true,
			says: []string{"waiting until"}},
		"by location":              {service: placed("u1", location, "ash"), want: "default"},
		"by location, one is full": {service: placed("u1", location, "PHX"), want: "west"},
		"by location, all are full": {service: placed("u1", location, "PHX"), served: []Place{ash, full},
			want: "west-full"},
		"a location without network": {service: placed("u1", location, "SGP"), says: []string{"SGP", location,
			"west (PHX)", "create a PublicNetwork there"}},
		"a location before all were read": {service: placed("u1", location, "SGP"), partial: true,
			says: []string{"waiting until"}},
		"a location, and a network that was not read": {service: placed("u1", location, "SGP"),
			served: []Place{ash, {Named: phx.Named}}, says: []string{"waiting until"}},
		"a location that means nothing": {service: placed("u1", location, "PHX"), without: true, want: "default"},
		"a location, one network": {service: placed("u1", location, "SGP"), served: []Place{ash},
			want: "default"},

		"its own block":                  {service: named(placed("u2"), "own"), want: "west"},
		"its own block, another asked":   {service: named(placed("u2", network, "default"), "own"), want: "west"},
		"the block of an earlier one":    {service: named(placed("u9"), "own"), want: "west"},
		"its address of a shared block":  {service: named(placed("u3", location, "ASH"), "pooled"), want: "west"},
		"its status":                     {service: addressed("203.0.114.3", network, "default"), want: "west"},
		"its status, in an object":       {service: addressed("198.51.100.3", network, "west"), want: "default"},
		"its status, in nothing":         {service: addressed("192.0.2.1", network, "west"), want: "west"},
		"the IPBlock that it names":      {service: placed("u1", contract.ServiceIPBlock, "mail"), want: "west"},
		"an IPBlock that does not exist": {service: placed("u1", contract.ServiceIPBlock, "none"), want: "default"},
		"its group":                      {service: placed("u1", contract.ServiceSharedAddress, "front"), want: "west"},
		"a group of its own": {service: placed("u1", contract.ServiceSharedAddress, "back"),
			want: "default"},
		"a network that is not served any more": {service: named(placed("u4", network, "west"), "stranded"),
			says: []string{"gone", "has its address or IP block", "create PublicNetwork"}},
		"a network that is not read yet": {service: named(placed("u4"), "stranded"), partial: true,
			says: []string{"waiting until"}},
	} {
		p := Places{Served: tc.served, Partial: tc.partial, LocationAnnotation: location}
		if p.Served == nil {
			p.Served = all
		}
		if tc.without {
			p.LocationAnnotation = ""
		}
		got, instead := p.Choose(tc.service, HomesOf(records))
		if got != tc.want || got == "" && len(tc.says) == 0 {
			t.Errorf("%s: %q (%s), want %q", name, got, instead.Detail, tc.want)
		}
		for _, part := range tc.says {
			if !strings.Contains(instead.Detail, part) {
				t.Errorf("%s: %q does not say %q", name, instead.Detail, part)
			}
		}
		if waits := strings.HasPrefix(instead.Detail, "waiting"); got == "" &&
			(instead.Action == ipblock.Wait) != waits {
			t.Errorf("%s: %v", name, instead)
		}
	}
}

// TestAServiceDoesNotMove: whatever the author of a Service that has something writes, and in whichever order networks
// and objects are listed, it stays where that is, and is released there.
func TestAServiceDoesNotMove(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"default", "a", "b", "c"}
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	for i := range 5000 {
		p := Places{LocationAnnotation: contract.ServiceIPLocation, Partial: random.IntN(4) == 0}
		for n, name := range names {
			p.Served = append(p.Served, place(name, pick("ASH", "PHX"), n, random.IntN(11)))
		}
		random.Shuffle(3, func(a, b int) { p.Served[a+1], p.Served[b+1] = p.Served[b+1], p.Served[a+1] })
		home := pick(names...)
		record := ipblock.Record{Name: "x", Network: home}
		s := placed("u1", contract.ServiceNetwork, pick(append(names, "", "other")...), contract.ServiceIPLocation,
			pick("ASH", "PHX", "SGP", ""), contract.ServiceIPBlock, pick("", "y"))
		switch h := HolderOf(s); random.IntN(3) {
		case 0:
			record.Service = h
		case 1:
			record.Holders = []ipblock.Holder{h}
		default:
			record.Report.CIDR = netip.MustParsePrefix("192.0.2.0/29")
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.3"}}
		}
		records := ipblock.Records{record, {Name: "y", Network: pick(names...)}}
		random.Shuffle(2, func(a, b int) { records[a], records[b] = records[b], records[a] })
		homes := HomesOf(records)
		chosen, _ := p.Choose(s, homes)
		released, _ := p.ChooseForRelease(s, homes)
		if chosen != home || released != home {
			t.Fatalf("%d: %s is chosen, and %s for the release, of %s: %+v", i, chosen, released, home, s.Annotations)
		}
		served := 0
		for _, name := range names {
			served += len(p.Serves(name, []*corev1.Service{s}, homes))
		}
		if served != 1 {
			t.Fatalf("%d: %d networks serve it", i, served)
		}
	}
}

// TestAnAddressThatWasSoldAgain: the record of another Service's block, which is gone, does not say where a Service is
// whose block has the same addresses in another network.
func TestAnAddressThatWasSoldAgain(t *testing.T) {
	p := Places{Served: []Place{place("default", "ASH", 0, 1), place("west", "PHX", 1, 1)}}
	s := placed("u1", contract.ServiceNetwork, "west")
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.3"}}
	cidr := netip.MustParsePrefix("192.0.2.0/29")
	lost := ipblock.Record{Name: "svc-u2", Network: "default", Service: ipblock.Holder{Namespace: "shop",
		Name: "lost", UID: "u2"}, Report: ipblock.Report{CIDR: cidr}}
	own := ipblock.Record{Name: "svc-u1", Network: "west", Service: HolderOf(s)}
	for _, records := range []ipblock.Records{{lost, own}, {own, lost}} {
		if chosen, _ := p.Choose(s, HomesOf(records)); chosen != "west" {
			t.Errorf("%s is chosen", chosen)
		}
	}
}

// TestOtherNetwork: an edit of the annotation is refused, and takes nothing away.
func TestOtherNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		network, asked string
		refused        bool
	}{
		"none asked": {"", "", false}, "default": {"", "default", false}, "its own": {"west", "west", false},
		"another": {"west", "default", true}, "not the default": {"", "west", true},
	} {
		obs := Observed{Service: placed("u1"), Account: ipblock.Account{Network: network.Named{Name: tc.network}},
			Desired: Desired{Network: tc.asked}}
		p := decideWanted(obs)
		said := strings.Contains(p.Step.Detail, "cannot be changed in place")
		if refused := p.Step.Reason == ipblock.AllocationMismatch && said; refused != tc.refused {
			t.Errorf("%s: %+v", name, p.Step)
		}
	}
}

func TestElsewhere(t *testing.T) {
	s := placed("u1")
	h := HolderOf(s)
	blocks := []network.Block{{ID: "b1"}, {ID: "b2"}, {ID: "b3", Description: "of pool west, purchase n-1"}}
	elsewhere := ipblock.Records{{Name: "svc-u1", Purchase: ipblock.Purchase{BlockID: "b1"}, Service: h},
		{Name: "west-shared-1", Purchase: ipblock.Purchase{Nonce: "n-1"}}}
	left := elsewhere.Without(blocks)
	if len(left) != 1 || left[0].ID != "b2" || len(blocks) != 3 {
		t.Errorf("%v are left of %v", left, blocks)
	}
	for name, tc := range map[string]struct {
		records, elsewhere ipblock.Records
		want               bool
	}{
		"nothing":           {nil, nil, false},
		"there":             {nil, elsewhere, true},
		"an address there":  {nil, ipblock.Records{{Holders: []ipblock.Holder{h}}}, true},
		"here and there":    {ipblock.Records{{Service: h}}, elsewhere, false},
		"of another":        {nil, ipblock.Records{{Service: ipblock.Holder{UID: "u2"}}}, false},
		"of one without ID": {nil, ipblock.Records{{Service: ipblock.Holder{Namespace: h.Namespace, Name: h.Name}}}, false},
	} {
		if got := OnlyElsewhere(h, netip.Addr{}, tc.records, tc.elsewhere); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
