package leader

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

const deadline = 10 * time.Second

// store answers reads of a Lease with the given one, and accepts or rejects writes after a while.
type store struct {
	t      *testing.T
	lease  string // its holder
	status int    // of the answer to a write
	takes  time.Duration
}

func (s *store) RoundTrip(request *http.Request) (*http.Response, error) {
	time.Sleep(s.takes)
	if request.Method == http.MethodGet {
		raw := encode(s.t, "application/vnd.kubernetes.protobuf", lease(s.lease))
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(raw))}, nil
	}
	return &http.Response{StatusCode: s.status, Body: http.NoBody}, nil
}

// candidate is a process that is elected through a store.
type candidate struct {
	*Leadership
	t     *testing.T
	store *store
	lost  []string // the holders that ended it
}

func newCandidate(t *testing.T) *candidate {
	t.Helper()
	c := &candidate{Leadership: New(), t: t, store: &store{t: t, status: http.StatusOK}}
	c.Elect(Election{RenewDeadline: deadline, Lost: func(holder string) { c.lost = append(c.lost, holder) }})
	return c
}

func (c *candidate) renew(name string) {
	c.t.Helper()
	body := lease("me")
	body.Name = name
	if err := send(c.t.Context(), c.t, c.WrapKube(c.store), http.MethodPut, leasesPath+"/"+name,
		encode(c.t, "application/json", body)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *candidate) read(path, holder string) {
	c.t.Helper()
	c.store.lease = holder
	if err := send(c.t.Context(), c.t, c.WrapKube(c.store), http.MethodGet, path, nil); err != nil {
		c.t.Fatal(err)
	}
}

func (c *candidate) wantOpen(open bool, when string) {
	c.t.Helper()
	err := c.MayChange()
	var fenced *FencedError
	if (err == nil) != open || err != nil && (!errors.As(err, &fenced) || fenced.Deadline != deadline) {
		c.t.Errorf("%s: %v, want open %t", when, err, open)
	}
}

// The account may be changed from the first renewal on until the deadline after the last.
//
//proves:known-bugs/deposed-leader
func TestFenceFollowsTheRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t)
		c.wantOpen(false, "before the first renewal")
		for range 20 {
			c.renew("ccm")
			c.wantOpen(true, "renewed")
			time.Sleep(deadline - time.Nanosecond)
			c.wantOpen(true, "just before the deadline")
		}
		time.Sleep(time.Nanosecond)
		c.wantOpen(false, "at the deadline")
		time.Sleep(time.Hour)
		c.wantOpen(false, "long after")
		c.renew("ccm")
		c.wantOpen(true, "renewed again")
	})
}

// The deadline counts from before the request: another replica may have read the renewal long before its answer
// arrives.
func TestFenceCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t)
		c.store.takes = 4 * time.Second
		c.renew("ccm")
		if ago := time.Since(c.Renewed()); ago != c.store.takes {
			t.Errorf("renewed %v ago, want %v", ago, c.store.takes)
		}
		time.Sleep(deadline - c.store.takes - time.Nanosecond)
		c.wantOpen(true, "just before the deadline")
		time.Sleep(time.Nanosecond)
		c.wantOpen(false, "at the deadline")
		c.store.takes = deadline
		c.renew("ccm")
		c.wantOpen(false, "the answer came after the deadline")
	})
}

// A write that the server rejects is not a renewal, and neither is the release of the Lease.
func TestWritesThatAreNoRenewal(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusForbidden, http.StatusInternalServerError} {
		c := newCandidate(t)
		c.store.status = status
		c.renew("ccm")
		c.wantOpen(false, http.StatusText(status))
	}
	c := newCandidate(t)
	if err := send(t.Context(), t, c.WrapKube(c.store), http.MethodPut, leasesPath+"/ccm",
		encode(t, "application/json", lease(""))); err != nil {
		t.Fatal(err)
	}
	c.wantOpen(false, "a Lease without a holder")
}

// A process that holds two Leases, as while controllers migrate, must renew both.
func TestFenceOfTwoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t)
		c.renew("ccm")
		time.Sleep(deadline / 2)
		c.renew("migration")
		c.wantOpen(true, "both")
		time.Sleep(deadline / 2)
		c.renew("migration")
		c.wantOpen(false, "one is late")
	})
}

func TestWithoutElectionTheFenceIsOpen(t *testing.T) {
	if err := New().MayChange(); err != nil {
		t.Error(err)
	}
}

// Only the wall clock shows that a machine was suspended; setting the wall clock back changes nothing.
func TestTheLongerDurationCounts(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ monotonic, wall, want time.Duration }{
		"both clocks":                  {time.Minute, time.Minute, time.Minute},
		"suspended, or set ahead":      {time.Second, time.Hour, time.Hour},
		"wall clock that was set back": {time.Minute, -time.Hour, time.Minute},
	} {
		later := instant{monotonic: noon.Add(c.monotonic), wall: noon.Add(c.wall)}
		if got := later.since(instant{monotonic: noon, wall: noon}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	const reading = " m=" // the reading of the monotonic clock, see time.Time.String
	if now := clocks(); !strings.Contains(now.monotonic.String(), reading) ||
		strings.Contains(now.wall.String(), reading) {
		t.Errorf("%+v does not contain both clocks", now)
	}
}

// A process that reads that a Lease it acquired has another holder, or none, ends once.
//
//proves:known-bugs/deposed-leader
func TestLostLease(t *testing.T) {
	for name, c := range map[string]struct {
		acquired, path, holder string
		want                   []string
	}{
		"still ours": {acquired: "ccm", path: leasesPath + "/ccm", holder: "me"},
		"of another": {acquired: "ccm", path: leasesPath + "/ccm", holder: "other",
			want: []string{"other"}},
		"released by another": {acquired: "ccm", path: leasesPath + "/ccm", holder: "", want: []string{""}},
		"behind a proxy": {acquired: "ccm", path: "/clusters/one" + leasesPath + "/ccm", holder: "other",
			want: []string{"other"}},
		"never acquired": {path: leasesPath + "/ccm", holder: "other"},
		"another Lease":  {acquired: "ccm", path: leasesPath + "/agent", holder: "other"},
		"of another namespace": {acquired: "ccm", path: strings.Replace(leasesPath, "kube-system", "x", 1) + "/ccm",
			holder: "other"},
		"no Lease but its status": {acquired: "ccm", path: leasesPath + "/ccm/status", holder: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			candidate := newCandidate(t)
			if c.acquired != "" {
				candidate.renew(c.acquired)
			}
			candidate.read(c.path, c.holder)
			candidate.read(c.path, c.holder)
			if len(candidate.lost) != len(c.want) || len(c.want) > 0 && candidate.lost[0] != c.want[0] {
				t.Errorf("lost to %q, want %q", candidate.lost, c.want)
			}
			if c.acquired != "" {
				candidate.wantOpen(len(c.want) == 0, "afterwards")
			}
			if len(c.want) > 0 {
				candidate.renew(c.acquired)
				candidate.wantOpen(false, "after it took the Lease again")
			}
		})
	}
}

// The election receives the Lease as the server sent it.
func TestALeaseThatIsReadPasses(t *testing.T) {
	c := newCandidate(t)
	c.renew("ccm")
	c.store.lease = "other"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server.example"+leasesPath+"/ccm",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.WrapKube(c.store).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeLease(raw); err != nil || holderOf(got) != "other" {
		t.Errorf("got %v, %v", got, err)
	}
}

// The election continues to read while the process releases its Lease; the released Lease does not count as lost.
func TestAReleasedLeaseIsNotLost(t *testing.T) {
	c := newCandidate(t)
	c.renew("ccm")
	if err := c.Release(t.Context(), fake.NewClientset(lease("me")).CoordinationV1()); err != nil {
		t.Fatal(err)
	}
	c.read(leasesPath+"/ccm", "")
	c.read(leasesPath+"/ccm", "other")
	if len(c.lost) > 0 {
		t.Errorf("lost to %q", c.lost)
	}
}

// The text contains the reason.
func TestFencedError(t *testing.T) {
	for want, err := range map[string]*FencedError{
		"this process did not renew its Lease within 10s; another replica may be the leader": {Deadline: deadline},
		"another replica holds the Lease: other": {Deadline: deadline,
			Holder: "other"},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestLeaseKey(t *testing.T) {
	want := types.NamespacedName{Namespace: "kube-system", Name: "ccm"}
	for path, known := range map[string]bool{
		leasesPath + "/ccm":                   true,
		"/k8s" + leasesPath + "/ccm":          true,
		leasesPath:                            false,
		leasesPath + "/ccm/status":            false,
		"/apis/coordination.k8s.io/v1/leases": false,
		podPath:                               false,
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leasecandidates/ccm": false,
	} {
		if got, ok := leaseKey(path); ok != known || known && got != want {
			t.Errorf("%s: %v, %t", path, got, ok)
		}
	}
}

func TestCheckRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			renewed bool
			ago     time.Duration
			fails   bool
		}{
			{"does not lead", false, time.Hour, false},
			{"renews", true, 2 * time.Second, false},
			{"just expired", true, 35 * time.Second, false},
			{"stuck", true, 36 * time.Second, true},
		} {
			candidate := newCandidate(t)
			if c.renewed {
				candidate.renew("ccm")
			}
			time.Sleep(c.ago)
			if err := candidate.CheckRenewal(15 * time.Second); (err != nil) != c.fails {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}
