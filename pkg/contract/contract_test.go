package contract

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var compareAddresses = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

//proves:known-bugs/capi-provider-ids
func TestParseProviderID(t *testing.T) {
	const id = "0123456789abcdef01234567"
	for _, tc := range []struct {
		in, want string
		wantErr  bool
	}{
		{in: "phoenixnap://" + id, want: id},
		{in: id, want: id},
		{in: "bmc://servers/" + id, want: id},
		{in: "", wantErr: true},
		{in: "aws:///eu-west-1a/i-0123456789abcdef0", wantErr: true},
		{in: "phoenixnap:///" + id, wantErr: true},
		{in: "phoenixnap://" + id + "0", wantErr: true},
		{in: "phoenixnap://" + strings.ToUpper(id), wantErr: true},
		{in: "phoenixnap://bmc://servers/" + id, wantErr: true},
	} {
		got, err := ParseProviderID(tc.in)
		if got != tc.want || (err != nil) != tc.wantErr {
			t.Errorf("ParseProviderID(%q) = %q, %v; want %q, error %v", tc.in, got, err, tc.want, tc.wantErr)
		}
	}
}

//proves:known-bugs/capi-provider-ids
func FuzzProviderID(f *testing.F) {
	f.Add("phoenixnap://0123456789abcdef01234567")
	f.Add("bmc://servers/0123456789abcdef01234567")
	f.Add("0123456789abcdef01234567")
	f.Add("aws:///x")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseProviderID(s)
		if err != nil {
			if id != "" {
				t.Fatalf("both an error and the ID %q", id)
			}
			return
		}
		if again, err := ParseProviderID(ProviderID(id)); err != nil || again != id {
			t.Fatalf("round trip of %q: %q, %v", s, again, err)
		}
	})
}

//proves:known-bugs/tag-characters
func TestServiceTag(t *testing.T) {
	legal := regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	long := strings.Repeat("n", 63)
	tags := map[string]string{}
	for _, tc := range []struct{ namespace, name, want string }{
		{namespace: "default", name: "web", want: "default_web"},
		{namespace: "a-b", name: "c", want: "a-b_c"},
		{namespace: "a", name: "b-c", want: "a_b-c"},
		{namespace: long[:49], name: long[:50]},
		{namespace: long, name: long},
		{namespace: long, name: long[:62] + "a"},
		{namespace: long, name: long[:62] + "b"},
		{namespace: long, name: long[:37]},
	} {
		got := ServiceTag(tc.namespace, tc.name)
		if tc.want != "" && got != tc.want {
			t.Errorf("ServiceTag(%q, %q) = %q, want %q", tc.namespace, tc.name, got, tc.want)
		}
		if !legal.MatchString(got) {
			t.Errorf("ServiceTag(%q, %q) = %q cannot be stored", tc.namespace, tc.name, got)
		}
		key := tc.namespace + "/" + tc.name
		if other, taken := tags[got]; taken {
			t.Errorf("%s and %s share the tag %q", key, other, got)
		}
		tags[got] = key
	}
}

func TestReportedAddressesSurviveTheAnnotation(t *testing.T) {
	want := ReportedAddresses{
		netip.MustParseAddr("203.0.113.10"): {State: AddressAnswered, MAC: "02:00:00:00:00:01", Held: true,
			Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		netip.MustParseAddr("203.0.113.11"): {State: AddressSilent,
			Since: time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)},
	}
	raw, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseReportedAddresses(raw)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("ParseReportedAddresses(%s) = %v, %v", raw, got, err)
	}
	if got, err := ParseReportedAddresses(""); got != nil || err != nil {
		t.Errorf("an empty annotation gives %v, %v", got, err)
	}
	older := `{"203.0.113.10":{"state":"Answered","mac":"02:00:00:00:00:01","since":"2026-03-01T12:00:00Z"}}`
	if got, err := ParseReportedAddresses(older); err != nil || got[netip.MustParseAddr("203.0.113.10")].Held {
		t.Errorf("a report without the field held: %v, %v", got, err)
	}
	if _, err := ParseReportedAddresses(`{"not an address":{}}`); err == nil {
		t.Error("no error for an invalid annotation")
	}
}

// FuzzReportedAddresses: parsing accepts any content of the annotation, and a parsed value can be encoded and parsed
// again.
func FuzzReportedAddresses(f *testing.F) {
	f.Add(`{"203.0.113.10":{"state":"Answered","mac":"02:00:00:00:00:01","held":true,"since":"2026-03-01T12:00:00Z"}}`)
	f.Add(`{"203.0.113.10":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, raw string) {
		first, err := ParseReportedAddresses(raw)
		if err != nil {
			return
		}
		encoded, err := first.Encode()
		if err != nil {
			return // a year of more than four digits can be parsed, but not encoded
		}
		again, err := ParseReportedAddresses(encoded)
		if err != nil || len(again) != len(first) {
			t.Errorf("%q became %q, read as %v (%v)", raw, encoded, again, err)
		}
	})
}
