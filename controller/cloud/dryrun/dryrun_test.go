package dryrun

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// seen is the request that reached the API server.
type seen struct {
	Query, ContentType, Body string
	Length                   int64
}

type recorder struct{ last seen }

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	r.last = seen{request.URL.RawQuery, request.Header.Get("Content-Type"), string(body), request.ContentLength}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func send(t *testing.T, method, path, contentType, body string) (seen, *http.Request, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://server.example"+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	var r recorder
	response, err := Wrap(&r).RoundTrip(request)
	if err != nil {
		return seen{}, request, err
	}
	return r.last, request, response.Body.Close()
}

func TestChangesAreMarked(t *testing.T) {
	const body = `{"a":1}`
	for name, c := range map[string]struct{ method, path, query string }{
		"create": {http.MethodPost, "/api/v1/namespaces/default/services", "dryRun=All"},
		"patch": {http.MethodPatch, "/api/v1/nodes/a?fieldManager=x",
			"dryRun=All&fieldManager=x"},
		"update status": {http.MethodPut, "/api/v1/namespaces/default/services/web/status",
			"dryRun=All"},
		"read":  {http.MethodGet, "/api/v1/nodes?watch=1", "watch=1"},
		"event": {http.MethodPost, "/api/v1/namespaces/default/events", ""},
		"event, new API": {http.MethodPatch, "/apis/events.k8s.io/v1/namespaces/default/events/x",
			""},
		"lease": {http.MethodPut,
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm", ""},
		"Service \"events-web\": not an event": {http.MethodPatch, "/api/v1/namespaces/default/services/events-web",
			"dryRun=All"},
	} {
		t.Run(name, func(t *testing.T) {
			got, original, err := send(t, c.method, c.path, "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			want := seen{Query: c.query, ContentType: "application/json", Body: body, Length: int64(len(body))}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if changed := original.URL.Query().Has("dryRun"); changed {
				t.Error("the caller's request was changed") // http.RoundTripper must not
			}
		})
	}
}

// The body of a DELETE decides; its preconditions must survive.
func TestDeletionsAreMarkedInTheBody(t *testing.T) {
	uid := types.UID("u1")
	policy := metav1.DeletePropagationBackground
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy}
	bodies := map[string]string{"empty": ""}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), options)
		if err != nil {
			t.Fatal(err)
		}
		bodies[info.MediaType] = string(raw)
	}
	if len(bodies) < 4 {
		t.Fatalf("only %d encodings", len(bodies))
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			got, _, err := send(t, http.MethodDelete, "/api/v1/nodes/a", name, body)
			if err != nil {
				t.Fatal(err)
			}
			var sent metav1.DeleteOptions
			if err := json.Unmarshal([]byte(got.Body), &sent); err != nil {
				t.Fatalf("%s: %v", got.Body, err)
			}
			want := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
				DryRun: []string{"All"}}
			if body != "" {
				want.Preconditions = options.Preconditions
				want.PropagationPolicy = options.PropagationPolicy
			}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.ContentType != "application/json" || got.Length != int64(len(got.Body)) {
				t.Errorf("%s, %d bytes announced of %d", got.ContentType, got.Length, len(got.Body))
			}
		})
	}
}

// A body that cannot be parsed is not sent, because it might delete.
func TestAnUnreadableDeletionIsRefused(t *testing.T) {
	for _, body := range []string{"{", `{"kind":"Pod","apiVersion":"v1"}`} {
		if got, _, err := send(t, http.MethodDelete, "/api/v1/nodes/a", "application/json", body); err == nil {
			t.Errorf("%q was sent: %+v", body, got)
		}
	}
}
