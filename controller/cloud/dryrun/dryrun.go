// Package dryrun makes the Kubernetes API server check changes without storing them.
package dryrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

// Wrap returns a transport that makes the API server check changes without storing them (dryRun=All, see
// https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run). Events are stored, because they report what
// would be done, and Leases, because the leader election needs them.
func Wrap(base http.RoundTripper) http.RoundTripper {
	return &transport{base: base}
}

type transport struct {
	base   http.RoundTripper
	logged sync.Map // changes that were already logged
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet || request.Method == http.MethodHead || isReal(request.URL.Path) {
		return t.base.RoundTrip(request)
	}
	t.record(request)
	dry, err := dryCopy(request)
	if err != nil {
		return nil, fmt.Errorf("dry run of %s %s: %w", request.Method, request.URL.Path, err)
	}
	return t.base.RoundTrip(dry)
}

// isReal reports whether the object of a path, such as /api/v1/namespaces/default/events/x, is stored in a dry run too.
func isReal(path string) bool {
	parts := strings.Split(path, "/")
	return slices.Contains(parts, "events") || slices.Contains(parts, "leases")
}

// record logs each change once; with --v=2 each attempt.
func (t *transport) record(request *http.Request) {
	what := request.Method + " " + request.URL.Path
	level := 0
	if _, logged := t.logged.LoadOrStore(what, true); logged {
		level = 2
	}
	klog.FromContext(request.Context()).V(level).Info("Dry run: an object would be changed", "method",
		request.Method, "path", request.URL.Path)
}

// dryCopy returns the request with dryRun=All: in the query, or for a DELETE in the body, because the API server
// ignores the query of a DELETE that has a body. The body of request is consumed.
func dryCopy(request *http.Request) (*http.Request, error) {
	dry := request.Clone(request.Context())
	query := dry.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	dry.URL.RawQuery = query.Encode()
	if request.Method != http.MethodDelete || request.Body == nil {
		return dry, nil
	}
	raw, err := io.ReadAll(request.Body)
	if closeErr := request.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	if raw, err = dryDelete(raw); err != nil {
		return nil, err
	}
	dry.Body = io.NopCloser(bytes.NewReader(raw))
	dry.ContentLength = int64(len(raw))
	dry.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	dry.Header.Set("Content-Type", "application/json")
	return dry, nil
}

// dryDelete sets dryRun in DeleteOptions in any encoding and returns them as JSON.
func dryDelete(raw []byte) ([]byte, error) {
	options := &metav1.DeleteOptions{}
	if len(raw) > 0 {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, err
		}
		known, ok := decoded.(*metav1.DeleteOptions)
		if !ok {
			return nil, fmt.Errorf("the body is a %T, not DeleteOptions", decoded)
		}
		options = known
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	options.DryRun = []string{metav1.DryRunAll}
	return json.Marshal(options)
}
