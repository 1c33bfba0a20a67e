package contract

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inASH and inPHX are networks of two locations with the same VLAN ID.
func inASH() NodeNetwork {
	return NodeNetwork{ServerID: "s", Name: "default", ID: "60473c2509268bc77fd06d29", VLAN: 20, Member: true,
		Announcer: AnnouncerKubeVIP,
		IPs: []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("2001:db8::2"),
			netip.MustParseAddr("203.0.113.10")},
		Blocks: []NetworkBlock{
			{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
			{CIDR: netip.MustParsePrefix("203.0.113.8/29"), Gateway: netip.MustParseAddr("203.0.113.9")},
		},
	}
}

func inPHX() NodeNetwork {
	return NodeNetwork{ServerID: "s", Name: "a-phx", ID: "60473c2509268bc77fd06d2a", VLAN: 20,
		Announcer: AnnouncerAgent}
}

// publishedOn are the annotations of a Node.
func publishedOn(t *testing.T, networks ...NodeNetwork) map[string]string {
	t.Helper()
	raw, err := EncodePublicNetworks(networks)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{NodeServerID: "s", NodePublicNetworks: raw}
}

func TestPublicNetworksRoundTrip(t *testing.T) {
	for name, tc := range map[string]struct{ networks, want []NodeNetwork }{
		"off":               {nil, []NodeNetwork{}},
		"member":            {[]NodeNetwork{inASH()}, []NodeNetwork{inASH()}},
		"the default first": {[]NodeNetwork{inPHX(), inASH()}, []NodeNetwork{inASH(), inPHX()}},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := publishedOn(t, tc.networks...)
			got, ok, err := ParsePublicNetworks(annotations)
			if err != nil || !ok {
				t.Fatalf("ParsePublicNetworks: %v, %v", ok, err)
			}
			if diff := cmp.Diff(tc.want, got, compareAddresses); diff != "" {
				t.Error(diff)
			}
			backwards := slices.Clone(tc.networks)
			slices.Reverse(backwards)
			if diff := cmp.Diff(annotations, publishedOn(t, backwards...)); diff != "" {
				t.Errorf("the order of the facts shows in the text: %s", diff)
			}
		})
	}
	if list, ok, err := ParsePublicNetworks(map[string]string{NodeServerID: "s"}); ok || err != nil || list != nil {
		t.Errorf("nothing published: %v, %v, %v", list, ok, err)
	}
}

// What the annotation looks like, which users read, too.
func TestPublicNetworksAsText(t *testing.T) {
	want := `[{"name":"default","id":"60473c2509268bc77fd06d29","vlan":20,` +
		`"ips":["203.0.113.2/29","2001:db8::2","203.0.113.10/29"],"member":true,"announcer":"kube-vip"},` +
		`{"name":"a-phx","id":"60473c2509268bc77fd06d2a","vlan":20,"ips":[],"member":false,"announcer":"agent"}]`
	if got := publishedOn(t, inPHX(), inASH())[NodePublicNetworks]; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := publishedOn(t)[NodePublicNetworks]; got != "[]" {
		t.Errorf("without networks: %s", got)
	}
}

// Every refusal names the annotation, the network and the value, and is short whatever is written there.
func TestParsePublicNetworksRefuses(t *testing.T) {
	const good = `{"name":"default","id":"n","vlan":20,"ips":[],"member":true,"announcer":"agent"}`
	many := make([]string, MaxNodeNetworks+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name":"n%d","id":"%d","vlan":20}`, i, i)
	}
	for raw, says := range map[string][]string{
		"":                                     {`""`, "list"},
		"null":                                 {`"null"`, "list"},
		"{":                                    {`"{"`, "list"},
		good:                                   {"list"},
		"[" + good + "] x":                     {"list"},
		`["default"]`:                          {"number 1", "default"},
		`[{"name":"x","vlan":1}]`:              {`"x"`, "ID", `""`},
		`[{"id":"n","vlan":1}]`:                {"number 1", "name", `"n"`},
		`[{"name":"x","id":"n","vlan":0}]`:     {`"x"`, "0 is not a VLAN ID"},
		`[{"name":"x","id":"n"}]`:              {`"x"`, "0 is not a VLAN ID"},
		`[{"name":"x","id":"n","vlan":4095}]`:  {`"x"`, "4095"},
		`[{"name":"x","id":"n","vlan":-1}]`:    {`"x"`, "-1"},
		`[{"vlan":"ten","name":"x","id":"n"}]`: {`"x"`, "ten"},
		`[{"name":"x","id":"n","vlan":1.5}]`:   {`"x"`, "1.5"},
		`[{"name":"x","id":"n","vlan":2,"member":"yes"}]`:                  {`"x"`, "yes"},
		`[{"name":"x","id":"n","vlan":2,"ips":["203.0.113.300"]}]`:         {`"x"`, `"203.0.113.300"`},
		`[{"name":"x","id":"n","vlan":2,"ips":["203.0.113.3/33"]}]`:        {`"x"`, `"203.0.113.3/33"`},
		`[{"name":"x","id":"n","vlan":2,"ips":[""]}]`:                      {`"x"`, `""`},
		"[" + good + `,{"name":"default","id":"o","vlan":20}]`:             {`"default"`, "name occurs twice"},
		"[" + good + `,{"name":"x","id":"n","vlan":21}]`:                   {`"x"`, `"n"`, "ID", "twice"},
		"[" + strings.Join(many, ",") + "]":                                {"65 public networks", "64"},
		`[{"name":"` + strings.Repeat("x", 9999) + `","id":"n","vlan":0}]`: {"xxx", "VLAN"},
	} {
		list, ok, err := ParsePublicNetworks(map[string]string{NodePublicNetworks: raw})
		if err == nil || ok || list != nil {
			t.Errorf("%s: %v, %v, %v", raw, list, ok, err)
			continue
		}
		for _, part := range append(says, "annotation "+NodePublicNetworks) {
			if !strings.Contains(err.Error(), part) || len(err.Error()) > 400 {
				t.Errorf("%.100s: the error %q lacks %s, or is too long", raw, err, part)
			}
		}
		if _, ok, again := NodeNetworkOf(map[string]string{NodePublicNetworks: raw}, ""); ok || again == nil {
			t.Errorf("%.100s: one network of it is read: %v", raw, again)
		}
	}
}

// A field of a later version is no reason to stop.
func TestParsePublicNetworksIgnoresFurtherFields(t *testing.T) {
	list, ok, err := ParsePublicNetworks(map[string]string{
		NodePublicNetworks: `[{"name":"default","id":"n","vlan":20,"peers":["x"]}]`})
	if err != nil || !ok || len(list) != 1 || list[0].VLAN != 20 {
		t.Errorf("%v, %v, %v", list, ok, err)
	}
}

// What an agent would refuse is not published.
func TestEncodePublicNetworksRefuses(t *testing.T) {
	many := make([]NodeNetwork, MaxNodeNetworks+1)
	for i := range many {
		many[i] = NodeNetwork{Name: fmt.Sprint("n", i), ID: fmt.Sprint(i), VLAN: 20}
	}
	if _, err := EncodePublicNetworks(many[1:]); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
	other := inPHX()
	other.ID = inASH().ID
	for name, networks := range map[string][]NodeNetwork{
		"too many": many, "twice": {inASH(), inASH()}, "one ID": {inASH(), other},
		"no VLAN": {{Name: "default", ID: "n"}}, "no name": {{ID: "n", VLAN: 20}},
		"no ID": {{Name: "default", VLAN: 20}},
	} {
		if raw, err := EncodePublicNetworks(networks); err == nil || raw != "" ||
			!strings.Contains(err.Error(), NodePublicNetworks) {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}

func TestNodeNetworkOf(t *testing.T) {
	both := publishedOn(t, inASH(), inPHX())
	for name, tc := range map[string]struct {
		annotations map[string]string
		id          string
		want        string // the name
	}{
		"nothing published":          {map[string]string{}, "", ""},
		"off":                        {publishedOn(t), "", ""},
		"any, of two":                {both, "", "default"},
		"any, not the default":       {publishedOn(t, inPHX()), "", "a-phx"},
		"the second":                 {both, inPHX().ID, "a-phx"},
		"another":                    {both, "60473c2509268bc77fd06d2b", ""},
		"the default, not published": {publishedOn(t, inPHX()), inASH().ID, ""},
	} {
		got, ok, err := NodeNetworkOf(tc.annotations, tc.id)
		if err != nil || ok != (tc.want != "") || got.Name != tc.want || ok && got.ServerID != "s" {
			t.Errorf("%s: %+v, %v, %v, want %q", name, got, ok, err, tc.want)
		}
	}
}

// The annotations that describe the network are those that are written.
func TestNetworkAnnotations(t *testing.T) {
	written := slices.Sorted(maps.Keys(publishedOn(t, inASH())))
	if diff := cmp.Diff(written, slices.Sorted(slices.Values(NetworkAnnotations()))); diff != "" {
		t.Error(diff)
	}
}
