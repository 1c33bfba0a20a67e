package leader

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

const (
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	podPath    = "/api/v1/namespaces/default/pods/a"
)

// server answers requests when answer is closed, and counts those that reached it.
type server struct {
	answer  chan struct{}
	reached atomic.Int32
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.reached.Add(1)
	select {
	case <-s.answer:
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

func send(ctx context.Context, t *testing.T, to http.RoundTripper, method, path string, body []byte) error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "https://server.example"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := to.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func refused(err error) bool {
	return errors.Is(err, pnap.ErrUnsent)
}

// Quiesce waits for a change in progress and rejects the next; reads and the election continue.
//
//proves:known-bugs/change-after-handover
func TestQuiesceWaitsForChangesInProgress(t *testing.T) {
	for name, wrap := range map[string]func(*Leadership) func(http.RoundTripper) http.RoundTripper{
		"Kubernetes": func(h *Leadership) func(http.RoundTripper) http.RoundTripper { return h.WrapKube },
		"phoenixNAP": func(h *Leadership) func(http.RoundTripper) http.RoundTripper { return h.WrapCloud },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New()
				s := &server{answer: make(chan struct{})}
				to := wrap(h)(s)
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
					go func() {
						if err := send(t.Context(), t, to, method, podPath, nil); err != nil {
							t.Errorf("%s in progress: %v", method, err)
						}
					}()
				}
				synctest.Wait()
				quiet := false
				go func() {
					if err := h.Quiesce(t.Context()); err != nil {
						t.Error(err)
					}
					quiet = true
				}()
				<-time.After(2 * lastRecords)
				synctest.Wait()
				if quiet {
					t.Error("Quiesce returned with four changes in progress")
				}
				if err := send(t.Context(), t, to, http.MethodPatch, podPath, nil); !refused(err) {
					t.Errorf("a change after Quiesce began: %v, want a rejection", err)
				}
				if reached := s.reached.Load(); reached != 4 {
					t.Errorf("%d changes reached the server, want 4", reached)
				}
				close(s.answer)
				<-time.After(2 * lastRecords)
				synctest.Wait()
				if !quiet {
					t.Error("Quiesce did not return after all answers")
				}
				if err := send(t.Context(), t, to, http.MethodGet, podPath, nil); err != nil {
					t.Errorf("a read: %v", err)
				}
				if err := send(t.Context(), t, h.WrapKube(s), http.MethodPut, leasesPath+"/ccm",
					encode(t, "application/json", lease("me"))); err != nil {
					t.Errorf("a renewal: %v", err)
				}
			})
		})
	}
}

// The result of the last change of the account can be recorded; afterwards all changes are rejected.
func TestTheLastAnswerIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New()
		s := &server{answer: make(chan struct{})}
		recorded := make(chan error, 1)
		go func() {
			if err := send(t.Context(), t, h.WrapCloud(s), http.MethodPost, "/ips/v1/ip-blocks", nil); err != nil {
				t.Error(err)
			}
			recorded <- send(t.Context(), t, h.WrapKube(s), http.MethodPatch, podPath, nil)
		}()
		synctest.Wait()
		go func() {
			<-time.After(2 * time.Second)
			close(s.answer)
		}()
		if err := h.Quiesce(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-recorded; err != nil {
			t.Errorf("the record: %v", err)
		}
		for name, to := range map[string]http.RoundTripper{"cloud": h.WrapCloud(s), "cluster": h.WrapKube(s)} {
			if err := send(t.Context(), t, to, http.MethodPatch, podPath, nil); !refused(err) {
				t.Errorf("%s, afterwards: %v, want a rejection", name, err)
			}
		}
	})
}

func TestQuiesceGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New()
		s := &server{answer: make(chan struct{})}
		under, stop := context.WithCancel(t.Context())
		go func() { _ = send(under, t, h.WrapCloud(s), http.MethodPost, "/ips/v1/ip-blocks", nil) }() // it is canceled
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := h.Quiesce(ctx)
		if err == nil || !strings.Contains(err.Error(), "1 changes have no answer yet") ||
			time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		stop()
		if err := h.Quiesce(t.Context()); err != nil {
			t.Errorf("after the last change was canceled: %v", err)
		}
	})
}

func lease(holder string) *coordinationv1.Lease {
	duration := int32(15)
	transitions := int32(3)
	renewed := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm", ResourceVersion: "7"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration,
			LeaseTransitions: &transitions, RenewTime: &renewed},
	}
}

func encode(t *testing.T, mediaType string, object runtime.Object) []byte {
	t.Helper()
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType != mediaType {
			continue
		}
		raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion),
			object)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	t.Fatalf("%s is not supported", mediaType)
	return nil
}

// The identity is read from the election's own requests, in the encodings that clients use.
func TestIdentityIsLearned(t *testing.T) {
	for name, c := range map[string]struct{ method, path, mediaType string }{
		"created as JSON":     {http.MethodPost, leasesPath, "application/json"},
		"renewed as JSON":     {http.MethodPut, leasesPath + "/ccm", "application/json"},
		"renewed as protobuf": {http.MethodPut, leasesPath + "/ccm", "application/vnd.kubernetes.protobuf"},
		"behind a proxy":      {http.MethodPut, "/clusters/one" + leasesPath + "/ccm", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			s := &server{answer: make(chan struct{})}
			close(s.answer)
			if err := send(t.Context(), t, h.WrapKube(s), c.method, c.path,
				encode(t, c.mediaType, lease("me"))); err != nil {
				t.Fatal(err)
			}
			if h.Renewed().IsZero() {
				t.Error("the renewal was not recorded")
			}
			want := map[types.NamespacedName]string{{Namespace: "kube-system", Name: "ccm"}: "me"}
			if diff := cmp.Diff(want, h.held); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A body that cannot be parsed is sent unchanged.
func TestAnUnreadableLeasePasses(t *testing.T) {
	h := New()
	s := &server{answer: make(chan struct{})}
	close(s.answer)
	for _, body := range []string{"", "{", `{"kind":"Pod","apiVersion":"v1"}`} {
		if err := send(t.Context(), t, h.WrapKube(s), http.MethodPut, leasesPath+"/ccm", []byte(body)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
	once := roundTripper(func(request *http.Request) (*http.Response, error) {
		request.GetBody = nil
		return h.WrapKube(s).RoundTrip(request)
	})
	if err := send(t.Context(), t, once, http.MethodPut, leasesPath+"/ccm",
		encode(t, "application/json", lease("me"))); err != nil {
		t.Error(err)
	}
	if len(h.held) != 0 || s.reached.Load() != 4 {
		t.Errorf("held %v after %d requests", h.held, s.reached.Load())
	}
}

//proves:known-bugs/lease-not-released
func TestReleaseOnlyReleasesOwnLeases(t *testing.T) {
	for name, c := range map[string]struct {
		stands    string // the holder of the Lease; empty: there is no Lease
		writes    []string
		conflicts int // how often another writer is faster
		want      string
		fails     bool
	}{
		"held":               {stands: "me", writes: []string{"me"}, want: ""},
		"standby":            {stands: "other", want: "other"},
		"lost":               {stands: "other", writes: []string{"me"}, want: "other"},
		"gone":               {writes: []string{"me"}},
		"one conflict":       {stands: "me", writes: []string{"me"}, conflicts: 1, want: ""},
		"repeated conflicts": {stands: "me", writes: []string{"me"}, conflicts: 9, want: "me", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			s := &server{answer: make(chan struct{})}
			close(s.answer)
			for _, holder := range c.writes {
				if err := send(t.Context(), t, h.WrapKube(s), http.MethodPut, leasesPath+"/ccm",
					encode(t, "application/json", lease(holder))); err != nil {
					t.Fatal(err)
				}
			}
			kube := fake.NewClientset()
			if c.stands != "" {
				kube = fake.NewClientset(lease(c.stands))
			}
			conflicts := c.conflicts
			kube.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				conflicts--
				return conflicts >= 0, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "ccm",
					errors.New("changed"))
			})
			if err := h.Release(t.Context(), kube.CoordinationV1()); (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := send(ctx, t, h.WrapKube(s), http.MethodPut, leasesPath+"/ccm",
					encode(t, "application/json", lease("me"))); !refused(err) || ctx.Err() == nil {
					t.Errorf("a renewal afterwards: %v, want a rejection when its context ends", err)
				}
			})
			got, err := kube.CoordinationV1().Leases("kube-system").Get(t.Context(), "ccm", metav1.GetOptions{})
			if c.stands == "" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("the Lease was created again: %v, %v", got, err)
				}
				return
			}
			if err != nil || holderOf(got) != c.want {
				t.Errorf("held by %q, %v; want %q", holderOf(got), err, c.want)
			}
		})
	}
}

// A released Lease keeps everything except its holder and its duration.
func TestReleased(t *testing.T) {
	want := lease("")
	*want.Spec.LeaseDurationSeconds = 1
	if diff := cmp.Diff(want, released(lease("me"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A renewal in progress ends before the Lease is released, so it cannot acquire the Lease again.
func TestReleaseWaitsForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New()
		s := &server{answer: make(chan struct{})}
		kube := fake.NewClientset(lease("me"))
		go func() {
			if err := send(t.Context(), t, h.WrapKube(s), http.MethodPut, leasesPath+"/ccm",
				encode(t, "application/json", lease("me"))); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		result := io.EOF
		go func() { result = h.Release(t.Context(), kube.CoordinationV1()) }()
		synctest.Wait()
		if len(kube.Actions()) > 0 ||
			result != io.EOF { //nolint:errorlint // the initial value: Release has not returned
			t.Errorf("before the renewal's answer: %v, %v", kube.Actions(), result)
		}
		close(s.answer)
		synctest.Wait()
		if result != nil || len(kube.Actions()) != 2 {
			t.Errorf("after it: %v, %v", kube.Actions(), result)
		}
	})
}
