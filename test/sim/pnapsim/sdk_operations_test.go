package pnapsim_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/locationapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
	"golang.org/x/oauth2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// sdkAPIs are the parts of the SDK through which pnapctl and phoenixNAP's Terraform provider speak of servers,
// networks, blocks, tags, locations and BGP peer groups.
func sdkAPIs() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[bmcapi.ServersAPI](), reflect.TypeFor[ipapi.IPBlocksAPI](),
		reflect.TypeFor[networkapi.PublicNetworksAPI](), reflect.TypeFor[networkapi.PrivateNetworksAPI](),
		reflect.TypeFor[networkapi.BGPPeerGroupsAPI](), reflect.TypeFor[tagapi.TagsAPI](),
		reflect.TypeFor[locationapi.LocationsAPI](),
	}
}

// sdkOperations are the methods of those parts that begin a request.
func sdkOperations() []string {
	var names []string
	for _, api := range sdkAPIs() {
		for method := range api.Methods() {
			if !strings.HasSuffix(method.Name, "Execute") {
				names = append(names, method.Name)
			}
		}
	}
	return names
}

// use is one operation as the clients of June 2026 use it: pnapctl 1.13.0 and the Terraform provider of that month.
type use struct {
	operation string // the SDK's method
	pnapctl   string // its command; empty for none
	terraform string // the provider's resource or data source; empty for none
	drive     func(*sdkRun)
}

// sdkStories are all operations. Each story has an account of its own, in which the order counts.
func sdkStories() map[string][]use {
	return map[string][]use{
		"tags": tagUses(), "blocks": blockUses(), "public networks": publicNetworkUses(),
		"private networks": privateNetworkUses(), "peer groups": peerGroupUses(), "locations": locationUses(),
		"servers": serverUses(), "server actions": serverActionUses(), "server networks": serverNetworkUses(),
	}
}

// TestSDKOperations drives every operation through the SDK, as phoenixNAP's own clients do, and holds each answer
// against the documents.
func TestSDKOperations(t *testing.T) {
	var tried []string
	wrong := 0
	for name, uses := range sdkStories() {
		t.Run(name, func(t *testing.T) {
			r := newSDKRun(t)
			for _, u := range uses {
				r.seen = nil
				u.drive(r)
				if !slices.Contains(r.seen, u.operation) {
					t.Errorf("%s was not asked for, but %v", u.operation, r.seen)
					continue
				}
				if u.pnapctl == "" && u.terraform == "" {
					t.Errorf("%s: which client uses it?", u.operation)
				}
				tried = append(tried, u.operation)
			}
			wrong += r.wrong
		})
	}
	all := sdkOperations()
	slices.Sort(all)
	slices.Sort(tried)
	if diff := cmp.Diff(all, tried); diff != "" {
		t.Errorf("operations of the SDK and those that were tried, each once (-SDK +tried):\n%s", diff)
	}
	t.Logf("figure sdk_operations_tried %d operations", len(tried))
	t.Logf("figure sdk_answers_wrong %d answers", wrong)
}

// sdkRun is the SDK against a simulation, with a look at each answer before the SDK decodes it.
type sdkRun struct {
	*testing.T
	*sdk
	ctx   context.Context
	sim   *pnapsim.Sim
	specs *pnapsim.Specs
	seen  []string // operations that were answered with success
	wrong int      // answers that differ from the documents

	block   string // IDs that one operation hands on to another
	network string
	tag     string
	server  string
	group   string
}

// newSDKRun serves the account of simtest. Its client is not judged: users of pnapctl may change what another has made.
func newSDKRun(t *testing.T) *sdkRun {
	t.Helper()
	account := simtest.Account()
	account.Clients[0].Judged = false
	// Without properties of the future, so that each that is not in the documents is a fault.
	sim, url := simtest.New(t, pnapsim.Config{Switches: pnapsim.Switches{ExtraFields: "off"}},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	r := &sdkRun{T: t, sim: sim, specs: simtest.Specs(t), block: simtest.NodeBlockID, network: simtest.NetworkID,
		server: simtest.Server1ID}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: reader{transport, r.read}, Timeout: time.Minute}
	r.ctx = context.WithValue(t.Context(), oauth2.HTTPClient, client)
	r.sdk = newSDK(r.ctx, url)
	return r
}

// reader is a transport that shows each answer.
type reader struct {
	http.RoundTripper
	read func(r *http.Request, status int, raw []byte)
}

// RoundTrip implements http.RoundTripper.
func (t reader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if r.URL.Path != tokenPath {
		t.read(r, resp.StatusCode, raw)
	}
	return resp, nil
}

func (r *sdkRun) read(request *http.Request, status int, raw []byte) {
	id, faults := r.specs.WrongAnswer(request, status, raw)
	if status < http.StatusMultipleChoices && id != "" {
		r.seen = append(r.seen, strings.ToUpper(id[:1])+id[1:]) // as the SDK's generator names its methods
	}
	if len(faults) > 0 {
		r.wrong++
		r.Errorf("%s %s answers %d %s: %v", request.Method, request.URL, status, raw, faults)
	}
}

// ask asks and wants a status; the SDK decodes what it gets. It ends the test when the status is another.
func ask[T any](r *sdkRun, status int, execute func() (T, *http.Response, error)) T {
	r.Helper()
	value, resp, err := execute() //nolint:bodyclose // the SDK has read and closed it
	r.check(status, resp, err)
	return value
}

// done is ask for an operation that answers with nothing.
func (r *sdkRun) done(status int, execute func() (*http.Response, error)) {
	r.Helper()
	resp, err := execute() //nolint:bodyclose // the SDK has read and closed it
	r.check(status, resp, err)
}

func (r *sdkRun) check(status int, resp *http.Response, err error) {
	r.Helper()
	if resp == nil || resp.StatusCode != status || (err == nil) != (status < http.StatusMultipleChoices) {
		r.Fatalf("answer %v, %v; want %d", resp, err, status)
	}
}

// same compares what an answer says with what it should say.
func (r *sdkRun) same(what string, got, want any) {
	r.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wait lets the model time pass.
func (r *sdkRun) wait(d time.Duration) { r.sim.Advance(d) }
