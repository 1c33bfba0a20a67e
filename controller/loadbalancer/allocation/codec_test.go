package allocation

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

var sameAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// sample is a ledger with everything that one can say.
func sample() plan.Ledger {
	address := netip.MustParseAddr
	return plan.Ledger{
		BlockID: "60473a6115e34466c9f8f083", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Closed: true,
		AssignedHere: true, Version: "7",
		Held: map[netip.Addr]plan.Holder{
			address("203.0.113.10"): {Namespace: "shop", Name: "web", UID: "u1"},
			address("203.0.113.11"): {Name: "60473c2509268bc77fd06d31"},
		},
		Quarantined: map[netip.Addr]plan.Released{
			address("203.0.113.12"): {Holder: plan.Holder{Namespace: "shop", Name: "api", UID: "u2"},
				Since: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)},
		},
	}
}

func TestStoredFormStays(t *testing.T) {
	object, err := encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "blockID": "60473a6115e34466c9f8f083",
  "cidr": "203.0.113.8/29",
  "closed": true,
  "assignedHere": true,
  "held": {
    "203.0.113.10": {
      "namespace": "shop",
      "name": "web",
      "uid": "u1"
    },
    "203.0.113.11": {
      "name": "60473c2509268bc77fd06d31"
    }
  },
  "quarantined": {
    "203.0.113.12": {
      "holder": {
        "namespace": "shop",
        "name": "api",
        "uid": "u2"
      },
      "since": "2026-03-01T12:00:00.000000005Z"
    }
  }
}`
	if diff := cmp.Diff(want, object.Data[dataKey]); diff != "" {
		t.Errorf("stored form (-want +got):\n%s", diff)
	}
	if object.Name != "phoenixnap-ip-block-60473a6115e34466c9f8f083" || object.Namespace != "kube-system" ||
		object.Labels["phoenixnap.com/ip-block-ledger"] != "true" || object.ResourceVersion != "7" {
		t.Errorf("ConfigMap is %v", object.ObjectMeta)
	}
	back, err := decode(object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), back, sameAddresses); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func TestWhatBreaksTheRulesIsNotStored(t *testing.T) {
	broken := sample()
	broken.Held[netip.MustParseAddr("203.0.113.9")] = plan.Holder{Namespace: "shop", Name: "gateway"}
	if _, err := encode(broken); err == nil || !strings.Contains(err.Error(), "203.0.113.9") {
		t.Errorf("said %v", err)
	}
}

func TestDamageIsNamed(t *testing.T) {
	const head = `{"blockID":"b","cidr":"203.0.113.8/29","held":`
	for _, test := range []struct{ name, data, want string }{
		{"no data", "", "EOF"},
		{"no JSON", "held: {}", "invalid character"},
		{"cut off", head + `{`, "unexpected EOF"},
		{"a field that is not known", head + `{},"until":"tomorrow"}`, "until"},
		{"more behind it", head + `{}}{}`, "more follows"},
		{"of another block", strings.Replace(head, `"b"`, `"c"`, 1) + `{}}`, `IP block "c"`},
		{"no address", head + `{"web":{"name":"x"}}}`, "web"},
		{"an address that no host may have", head + `{"203.0.113.15":{"name":"x"}}}`, "203.0.113.15"},
		{"a holder twice", head + `{"203.0.113.10":{"name":"x"},"203.0.113.11":{"name":"x"}}}`, "holds 203.0.113."},
		{"no CIDR", `{"blockID":"b","held":{}}`, "is not a valid IPv4 block"},
		{"null", "null", "is not a valid IPv4 block"},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: NamePrefix + "b"},
				Data: map[string]string{dataKey: test.data}}
			_, err := decode(object)
			if err == nil {
				t.Fatal("it was read")
			}
			for _, part := range []string{test.want, "ConfigMap kube-system/phoenixnap-ip-block-b", "restore it"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

// FuzzParse: what is read keeps the rules, and is stored and read again as the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"blockID":"b","cidr":"203.0.113.8/29","held":{"203.0.113.10":{"name":"x"}}}`,
		`{"blockID":"b","cidr":"203.0.113.8/29","held":{},"quarantined":{"203.0.113.10":{"holder":{"name":"x"},"since":"2026-03-01T12:00:00+01:00"}}}`,
		`{"blockID":"b","cidr":"::/0","held":null}`, "null", "", `{"BLOCKID":"b","cidr":"203.0.113.9/29"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := parse(raw)
		if err != nil {
			return
		}
		object, err := encode(read)
		if err != nil {
			t.Fatalf("what was read is not stored: %v", err)
		}
		again, err := parse(object.Data[dataKey])
		if err != nil {
			t.Fatalf("what was stored is not read: %v", err)
		}
		if diff := cmp.Diff(read, again, sameAddresses); diff != "" {
			t.Errorf("read again (-first +second):\n%s", diff)
		}
	})
}
