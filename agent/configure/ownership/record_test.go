package ownership

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// byValue compares addresses as a set: a packed record has them in an order of its own.
var byValue = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty(),
	cmpopts.SortSlices(func(a, b netip.Prefix) bool { return a.String() < b.String() })}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestRecordInAlias(t *testing.T) {
	for alias, want := range map[string]Record{
		"phoenixnap-agent made":                     {Made: true},
		"phoenixnap-agent made ip=192.0.2.2/28":     {Made: true, Addresses: prefixes("192.0.2.2/28")},
		"phoenixnap-agent adopted down":             {Down: true},
		"to rack 7 | phoenixnap-agent adopted down": {Down: true, Alias: "to rack 7"},
		"a | b | phoenixnap-agent made":             {Made: true, Alias: "a | b"},
		"phoenixnap-agent adopted proxy_arp=1 rp_filter=-1 ip=192.0.2.2/28 ip=169.254.7.9/32": {
			Before: Settings{ProxyARP: 1, RPFilter: -1}, Addresses: prefixes("192.0.2.2/28", "169.254.7.9/32")},
	} {
		got, ok, err := ParseRecord(alias)
		if err != nil || !ok {
			t.Errorf("%q: a record %t, %v", alias, ok, err)
		}
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Errorf("%q (-want +got):\n%s", alias, diff)
		}
		if again, err := want.Encode(); err != nil || again != alias {
			t.Errorf("%+v is written as %q, %v; want %q", want, again, err, alias)
		}
	}
}

func TestNoRecord(t *testing.T) {
	for _, alias := range []string{"", "uplink", "phoenixnap-agent", "phoenixnap-agent is nice",
		"see phoenixnap-agent made", "xphoenixnap-agent made"} {
		if r, ok, err := ParseRecord(alias); ok || err != nil {
			t.Errorf("%q is read as the record %+v, %v", alias, r, err)
		}
	}
}

func TestBrokenRecord(t *testing.T) {
	for _, alias := range []string{"phoenixnap-agent made ip=192.0.2.2", "phoenixnap-agent made rp_filter=many",
		"phoenixnap-agent adopted mtu=1500", "phoenixnap-agent made packed=", "phoenixnap-agent made packed=?",
		"phoenixnap-agent made packed=AMAAAhwA", "phoenixnap-agent made packed=AMAAAgQAAA"} {
		if _, ok, err := ParseRecord(alias); !ok || err == nil || !strings.Contains(err.Error(), alias) {
			t.Errorf("%q: a record %t, %v; want an error that quotes it", alias, ok, err)
		}
	}
}

// TestBirth: the agent's words and its group count only on a link as the agent makes it.
func TestBirth(t *testing.T) {
	newborn := Link{Group: BirthGroup, Tagged: true}
	with := func(change func(*Link)) Link {
		l := newborn
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		link     Link
		ok, made bool
	}{
		"new":                   {newborn, true, true},
		"recorded":              {Link{Alias: "phoenixnap-agent made", Tagged: true, Up: true, Addressed: true}, true, true},
		"foreign":               {Link{Tagged: true}, false, false},
		"foreign, grouped":      {with(func(l *Link) { l.Alias = "mine" }), false, false},
		"adopted, grouped":      {with(func(l *Link) { l.Alias = "phoenixnap-agent adopted down" }), true, false},
		"grouped, but a bridge": {with(func(l *Link) { l.Tagged = false }), false, false},
		"grouped and a port":    {with(func(l *Link) { l.Port = true }), false, false},
		"grouped and up":        {with(func(l *Link) { l.Up = true }), false, false},
		"grouped and addressed": {with(func(l *Link) { l.Addressed = true }), false, false},
	} {
		r, ok, err := Read(tc.link)
		if err != nil || ok != tc.ok || r.Made != tc.made {
			t.Errorf("%s: record %t, made %t, %v", name, ok, r.Made, err)
		}
	}
	_, ok, err := Read(Link{Name: "bond0", Alias: "phoenixnap-agent made"})
	if ok || err == nil || !strings.Contains(err.Error(), "bond0") {
		t.Errorf("a bond that is marked as made by the agent: record %t, %v; want an error that names it", ok, err)
	}
}

// TestFirstValueStays: the recorded value of a setting is the one before the first change.
func TestFirstValueStays(t *testing.T) {
	var r Record
	r.Changes(Settings{RPFilter: 1})
	r.Changes(Settings{RPFilter: 0, ARPIgnore: 8})
	if diff := cmp.Diff(Settings{RPFilter: 1, ARPIgnore: 8}, r.Before); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzRecord: parsing never panics, and a parsed record is encoded to one that parses the same.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"phoenixnap-agent made ip=192.0.2.2/28",
		"a | phoenixnap-agent adopted down rp_filter=1", "phoenixnap-agent made ip=::1/128 ip=x",
		"phoenixnap-agent adopted packed=AQgCwAACBFVV"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, alias string) {
		first, ok, err := ParseRecord(alias)
		if !ok || err != nil {
			return
		}
		written, err := first.Encode()
		if err != nil {
			return
		}
		slices.SortFunc(first.Addresses, netip.Prefix.Compare)
		first.Addresses = slices.Compact(first.Addresses)
		second, ok, err := ParseRecord(written)
		slices.SortFunc(second.Addresses, netip.Prefix.Compare)
		second.Addresses = slices.Compact(second.Addresses)
		if diff := cmp.Diff(first, second, byValue); !ok || err != nil || diff != "" {
			t.Errorf("%q becomes %q: %v\n%s", alias, written, err, diff)
		}
	})
}

// TestEmpty: only the record of an adopted link that was not changed says nothing.
func TestEmpty(t *testing.T) {
	for name, r := range map[string]Record{
		"made": {Made: true}, "set up": {Down: true}, "settings": {Before: Settings{RPFilter: 1}},
		"addresses": {Addresses: prefixes("192.0.2.2/28")},
	} {
		if r.Empty() {
			t.Errorf("%s: the record is empty", name)
		}
	}
	if !(Record{Alias: "to rack 7"}).Empty() {
		t.Error("the record of an unchanged link is not empty")
	}
}
