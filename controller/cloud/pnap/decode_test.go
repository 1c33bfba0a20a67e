package pnap

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

var equateAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

//proves:known-bugs/ranges-and-ipv6
func TestExpandRange(t *testing.T) {
	for text, want := range map[string][]netip.Addr{
		"10.0.0.4":                          addrs("10.0.0.4"),
		" 10.0.0.4 ":                        addrs("10.0.0.4"),
		"182.16.0.146 - 182.16.0.148":       addrs("182.16.0.146", "182.16.0.147", "182.16.0.148"),
		"10.0.0.255 - 10.0.1.0":             addrs("10.0.0.255", "10.0.1.0"),
		"10.0.0.4 - 10.0.0.4":               addrs("10.0.0.4"),
		"2001:db8::1 - 2001:db8::2":         addrs("2001:db8::1", "2001:db8::2"),
		"255.255.255.255 - 255.255.255.255": addrs("255.255.255.255"),
		"10.0.0.5 - 10.0.0.4":               nil,
		"10.0.0.5 - 2001:db8::2":            nil,
		"10.0.0.0 - 10.255.255.255":         nil,
		"2001:db8:: - 2001:db8:ffff::":      nil,
		"":                                  nil, "x": nil, "10.0.0.4 - ": nil, "10.0.0.0/29": nil,
	} {
		if diff := cmp.Diff(want, expandRange(text), equateAddrs); diff != "" {
			t.Errorf("expandRange(%q) (-want +got):\n%s", text, diff)
		}
	}
}

//proves:known-bugs/ranges-and-ipv6
func FuzzExpandRange(f *testing.F) {
	for _, seed := range []string{"10.0.0.4", "182.16.0.146 - 182.16.0.148", "2001:db8::1 - 2001:db8::2", " - "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all := expandRange(text)
		if len(all) > longestRange {
			t.Fatalf("%d addresses", len(all))
		}
		for i := 1; i < len(all); i++ {
			if all[i-1].Next() != all[i] {
				t.Fatalf("%v does not follow %v", all[i], all[i-1])
			}
		}
		if len(all) > 0 {
			again := expandRange(all[0].String() + " - " + all[len(all)-1].String())
			if diff := cmp.Diff(all, again, equateAddrs); diff != "" {
				t.Fatalf("round trip: %s", diff)
			}
		}
	})
}

const fullServer = `{"id":"5f0000000000000000000001","status":"powered-on","hostname":"srv-a.example","type":"s2.c1.medium","location":"ASH",
 "os":"ubuntu/jammy","networkType":"PUBLIC_AND_PRIVATE","privateIpAddresses":["10.0.0.11"],"publicIpAddresses":["198.51.100.2 - 198.51.100.4"],
 "networkConfiguration":{"gatewayAddress":"198.51.100.1","publicNetworkConfiguration":{"publicNetworks":[
   {"id":"60000000000000000000000a","ips":["203.0.113.3"],"statusDescription":"assigned","x-future":{}}, 7]}},"x-future":{"y":1}}`

// One invalid element must not block the others, and an invalid property must not block its element.
//
//proves:known-bugs/odd-element
func TestServersAreDecodedOneByOne(t *testing.T) {
	s := newService(t, raw(200, "application/json", `[`+fullServer+`,
		{"status":"powered-on"}, null, 5, "text", {"id":7},
		{"id":"5f0000000000000000000002","hostname":["odd"],"privateIpAddresses":[null,"x","10.0.0.12"]}]`))
	got, err := clientOf(t, s).Servers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Server{
		{
			ID: "5f0000000000000000000001", Hostname: "srv-a.example", Status: ServerPoweredOn, Type: "s2.c1.medium",
			Location: "ASH",
			OS:       "ubuntu/jammy", NetworkType: "PUBLIC_AND_PRIVATE", PrivateIPs: addrs("10.0.0.11"),
			PublicIPs: addrs("198.51.100.2", "198.51.100.3", "198.51.100.4"),
			PublicNetworks: []Membership{{Network: "60000000000000000000000a", IPs: addrs("203.0.113.3"),
				Status: "assigned"}},
			GatewayAddress: netip.MustParseAddr("198.51.100.1"),
		},
		{ID: "5f0000000000000000000002", PrivateIPs: addrs("10.0.0.12")},
	}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

//proves:known-bugs/empty-body
func TestListsThatAreNone(t *testing.T) {
	for _, body := range []string{`null`, `{}`, `"x"`, ``, `[{"id":"a"}`} {
		servers, err := clientOf(t, newService(t, raw(200, "application/json", body))).Servers(t.Context())
		if err == nil {
			t.Errorf("%q: got %v and no error", body, servers)
		}
	}
}

//proves:known-bugs/wrong-object
func TestAnswerAboutAnotherObject(t *testing.T) {
	client := clientOf(t, newService(t, raw(200, "application/json", `{"id":"b2","status":"unassigned"}`)))
	if block, err := client.Block(t.Context(), "b1"); err == nil {
		t.Errorf("got %+v and no error", block)
	}
}

//proves:known-bugs/disagreeing-views
//proves:known-bugs/tag-filter-or
func TestBlocksAreFilteredOnOurSide(t *testing.T) {
	var query string
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		raw(200, "application/json", `[
			{"id":"b1","location":"ASH","cidr":"203.0.113.8/29","status":"assigned","assignedResourceId":"n1","assignedResourceType":"PUBLIC_NETWORK",
			 "description":"d","tags":[{"id":"t","name":"cluster","value":"u"},{"id":"t","name":"usage","value":"x"},{"name":5}],"isBringYourOwn":true},
			{"id":"b2","cidr":"203.0.113.16/29","status":"unassigned","tags":[{"id":"t","name":"usage","value":"x"}]},
			{"id":"b3","cidr":"odd","status":"unassigned","assignedResourceType":"public network","tags":[{"id":"t","name":"usage","value":"x"},{"id":"t","name":"cluster","value":"u"}]}]`)(w, r)
	})
	got, err := clientOf(t, s).Blocks(t.Context(), map[string]string{"usage": "x", "cluster": "u"})
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{"cluster": "u", "usage": "x"}
	want := []network.Block{
		{ID: "b1", Location: "ASH", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Status: network.Assigned,
			ResourceID:   "n1",
			ResourceType: "public network", Description: "d", Tags: tags, BringYourOwn: true},
		{ID: "b3", Status: network.Unassigned, ResourceType: "public network", Tags: tags},
	}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if want := "tag=cluster.u&tag=usage.x"; query != want {
		t.Errorf("query %q, want %q", query, want)
	}
}

// TestPartsAreKnown: a block is a part when its parent is a block of the account. What phoenixNAP sells may be from a
// block of its own, which no customer can read.
func TestPartsAreKnown(t *testing.T) {
	const part = `{"id":"b2","status":"unassigned","parentIpBlockAllocationId":"b1"}`
	const sold = `{"id":"b3","status":"unassigned","parentIpBlockAllocationId":"p1","isSystemManaged":true}`
	const parent = `{"id":"b1","status":"subnetted"}`
	status := http.StatusForbidden
	client := clientOf(t, newService(t, func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{"b1": parent, "b2": part, "b3": sold, "ip-blocks": `[` + part + `,` + parent + `,` +
			sold + `]`}
		if answer, found := answers[path.Base(r.URL.Path)]; found {
			raw(http.StatusOK, "application/json", answer)(w, r)
			return
		}
		raw(status, "application/json", `{"message":"no"}`)(w, r)
	}))
	listed, err := client.Blocks(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range listed {
		read, err := client.Block(t.Context(), b.ID)
		if err != nil {
			t.Fatal(err)
		}
		if want := b.ID == "b2"; b.Part != want || read.Part != want || b.SystemManaged != (b.ID == "b3") {
			t.Errorf("%s: a part is %t in the list and %t by its ID, want %t; %+v", b.ID, b.Part, read.Part, want, b)
		}
	}
	status = http.StatusInternalServerError
	if block, err := client.Block(t.Context(), "b3"); err == nil {
		t.Errorf("its parent cannot be read, and the block is %+v", block)
	}
}

//proves:known-bugs/missing-field
func TestNetwork(t *testing.T) {
	client := clientOf(t, newService(t, raw(200, "application/json",
		`{"id":"n1","name":"net","location":"ASH","vlanId":100,"status":"BUSY",
		"ipBlocks":[{"id":"b1","cidr":"203.0.113.8/29","usedIpsCount":"2"}],
		"memberships":[{"resourceId":"s1","resourceType":"server","ips":["203.0.113.10 - 203.0.113.11"]},{"resourceId":"x","resourceType":"storage"}]}`)))
	got, err := client.Network(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	want := network.Network{ID: "n1", Name: "net", Location: "ASH", VLAN: 100, Status: network.StatusBusy,
		Blocks:  []network.ListedBlock{{ID: "b1", CIDR: netip.MustParsePrefix("203.0.113.8/29")}},
		Members: []network.Member{{ServerID: "s1", IPs: addrs("203.0.113.10", "203.0.113.11")}}}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
}

// The API answers 202 with a text instead of an object.
//
//proves:known-bugs/text-answer
func TestAcceptedWithText(t *testing.T) {
	for _, contentType := range []string{"application/json", "text/plain"} {
		client := clientOf(t, newService(t, raw(202, contentType, `"The specified IP block is being removed"`)))
		if err := client.UnassignBlock(t.Context(), "n1", "b1"); err != nil {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}

//proves:known-bugs/force-unassign
func TestUnassignNeverForces(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if force := r.URL.Query().Get("force"); force != "" && force != "false" { // the SDK sends the default
			t.Errorf("query %q", r.URL.RawQuery)
		}
		raw(202, "application/json", `"ok"`)(w, r)
	})
	if err := clientOf(t, s).UnassignBlock(t.Context(), "n1", "b1"); err != nil {
		t.Error(err)
	}
}

//proves:known-bugs/new-tags-refused
func TestEnsureTagsAcceptsThatAnotherWasFaster(t *testing.T) {
	created := []string{}
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			raw(200, "application/json", `[{"id":"t1","name":"usage","isBillingTag":false},{"id":"t2"}]`)(w, r)
			return
		}
		created = append(created, r.Method)
		raw(409, "application/json", `{"message":"exists"}`)(w, r)
	})
	if err := clientOf(t, s).EnsureTags(t.Context(), "usage", "cluster", "service"); err != nil {
		t.Error(err)
	}
	if len(created) != 2 {
		t.Errorf("%d tags were created, want 2", len(created))
	}
}

func TestTagAssignments(t *testing.T) {
	client := clientOf(t, newService(t, raw(200, "application/json", `[
		{"id":"t1","name":"service","resourceAssignments":[{"resourceName":"/ips/ip-blocks/b1","value":"ns_a"},{"resourceName":"/bmc/servers/s1","value":"x"},{"resourceName":"/ips/ip-blocks/b2"}]},
		{"id":"t2","name":"service2","resourceAssignments":[{"resourceName":"/ips/ip-blocks/b3","value":"ns_b"}]}]`)))
	got, err := client.TagAssignments(t.Context(), "service")
	if diff := cmp.Diff(map[string]string{"b1": "ns_a", "b2": ""}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

//proves:known-bugs/missing-field
func FuzzDecodeServer(f *testing.F) {
	f.Add(`[` + fullServer + `]`)
	f.Add(`[{"id":"x","networkConfiguration":5}]`)
	f.Fuzz(func(t *testing.T, body string) {
		elements, err := decodeList(t.Context(), "list servers", []byte(body), "id")
		if err != nil {
			return
		}
		for _, element := range elements {
			if decodeServer(element).ID == "" || decodeBlock(element).ID == "" || decodeNetwork(element).ID == "" {
				t.Fatal("an element without ID was kept")
			}
		}
	})
}

// Whatever a list contains, a valid element is kept, in its order.
//
//proves:known-bugs/odd-element
func FuzzDecodeList(f *testing.F) {
	f.Add([]byte(`5`), []byte(`{"id":7}`))
	f.Add([]byte(`null`), []byte(`{"id":"x","tags":[null,5,{"name":"a"}],"ips":{}}`))
	f.Add([]byte(`{}`), []byte(`"text"`))
	f.Add([]byte(`{"id":"b","id":"c"}`), []byte(`[[]]`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if !json.Valid(before) || !json.Valid(after) {
			return
		}
		body := fmt.Appendf(nil, `[%s,{"id":"kept","status":"assigned"},%s]`, before, after)
		elements, err := decodeList(t.Context(), "list IP blocks", body, "id")
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		found := 0
		for _, element := range elements {
			if block := decodeBlock(element); block.ID == "kept" && block.Status == network.Assigned {
				found++
			}
			decodeServer(element)
			decodeNetwork(element)
		}
		if found == 0 || len(elements) > 3 {
			t.Fatalf("%s: %d of %d", body, found, len(elements))
		}
	})
}
