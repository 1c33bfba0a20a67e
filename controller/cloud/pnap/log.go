package pnap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// The levels of the log: operations, the objects that are sent and answered, every exchange over HTTP.
const (
	levelOperations = 2
	levelObjects    = 3
	levelCalls      = 5
)

const (
	redacted = "[redacted]"
	// maxLogged bounds the text of one object in the log; a list of a thousand servers has about 3 MB.
	maxLogged = 32 << 10
)

// loggingTransport logs what goes over HTTP, without secrets.
type loggingTransport struct {
	base   http.RoundTripper
	redact func(string) string
	// objects is false where bodies consist of secrets, as those of a token request.
	objects bool
	now     func() time.Time
}

// RoundTrip implements http.RoundTripper.
func (t *loggingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	logger := klog.FromContext(ctx).WithValues("operation", operationOf(ctx), "method", request.Method, "url",
		t.url(request.URL))
	objects := logger.V(levelObjects)
	calls := logger.V(levelCalls)
	if t.objects && objects.Enabled() && request.GetBody != nil {
		if body, err := request.GetBody(); err == nil {
			objects.Info("phoenixNAP API request with an object", "object", t.text(io.NopCloser(body)))
		}
	}
	calls.Info("Sending a request to phoenixNAP", "header", t.header(request.Header))
	began := t.now()
	response, err := t.base.RoundTrip(request)
	if err != nil {
		calls.Info("No answer of phoenixNAP", "err", t.redact(err.Error()), "duration", t.now().Sub(began))
		return nil, err
	}
	calls.Info("Answer of phoenixNAP", "status", response.StatusCode, "header", t.header(response.Header), "duration",
		t.now().Sub(began))
	if t.objects && objects.Enabled() {
		var shown bytes.Buffer
		original := response.Body
		_, err := io.Copy(&shown, io.LimitReader(original, maxBody))
		response.Body = replay(shown.Bytes(), err, original)
		objects.Info("phoenixNAP API answer with an object", "status", response.StatusCode, "object",
			t.text(io.NopCloser(bytes.NewReader(shown.Bytes()))))
	}
	return response, nil
}

// replay returns a body that was read already: the same bytes, and then the same error or what was left.
func replay(read []byte, err error, original io.ReadCloser) io.ReadCloser {
	rest := io.Reader(original)
	if err != nil {
		rest = failedReader{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), original}
}

// failedReader returns the error that ended a body.
type failedReader struct{ err error }

// Read implements io.Reader.
func (r failedReader) Read([]byte) (int, error) { return 0, r.err }

// text returns the content of a body without its secrets. A body that is not JSON, such as a page of a proxy, is
// described by its length only, because its secrets cannot be found by name.
func (t *loggingTransport) text(body io.ReadCloser) string {
	raw, err := io.ReadAll(body)
	_ = body.Close() // bytes in memory
	if err != nil || len(raw) == 0 {
		return ""
	}
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return fmt.Sprintf("(not JSON, %d bytes)", len(raw))
	}
	shown, err := json.Marshal(withoutSecrets(value))
	if err != nil {
		return fmt.Sprintf("(%d bytes)", len(raw))
	}
	text := t.redact(string(shown))
	if len(text) > maxLogged {
		text = strings.ToValidUTF8(text[:maxLogged], "") + fmt.Sprintf("… (%d bytes)", len(raw))
	}
	return text
}

// withoutSecrets replaces the values of all members of JSON objects whose names may stand for a secret, and of tags
// with such a name.
func withoutSecrets(value any) any {
	switch value := value.(type) {
	case map[string]any:
		tag, _ := value["name"].(string)
		for name, member := range value {
			if isSecret(name) || name == "value" && isSecret(tag) {
				value[name] = redacted
			} else {
				value[name] = withoutSecrets(member)
			}
		}
	case []any:
		for i, element := range value {
			value[i] = withoutSecrets(element)
		}
	}
	return value
}

// isSecret reports whether a member, a header or a parameter of that name may contain a secret: a token, a password, a
// key, or what a server executes at its first start.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "credential", "key", "license", "passw", "secret", "token",
		"userdata"}, func(part string) bool { return strings.Contains(name, part) })
}

// url returns a URL without the values of parameters that may be secrets.
func (t *loggingTransport) url(u *url.URL) string {
	shown := *u
	shown.User = nil
	query := shown.Query()
	for name := range query {
		if isSecret(name) {
			query.Set(name, "redacted")
		}
	}
	shown.RawQuery = query.Encode()
	return t.redact(shown.String())
}

// header returns the lines of a header in their order, without secrets.
func (t *loggingTransport) header(header http.Header) string {
	var lines []string
	for name, values := range header {
		if isSecret(name) {
			values = []string{redacted}
		}
		lines = append(lines, name+": "+strings.Join(values, ", "))
	}
	slices.Sort(lines)
	return t.redact(strings.Join(lines, "; "))
}
