package pnap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// longestRange bounds the addresses that a range "a - b" is expanded to; longer ranges are invalid.
const longestRange = 4096

// object is a JSON object whose properties are read one by one: a property that is absent or of another type reads as
// empty and does not affect the others.
type object map[string]json.RawMessage

// decode returns the zero value for JSON of another type.
func decode[T any](raw json.RawMessage) T {
	var value, none T
	if json.Unmarshal(raw, &value) != nil {
		return none
	}
	return value
}

// decodeEach decodes the elements of a list, and drops those of another type.
func decodeEach[T any](list []json.RawMessage) []T {
	elements := make([]T, 0, len(list))
	for _, raw := range list {
		var element T
		if json.Unmarshal(raw, &element) == nil {
			elements = append(elements, element)
		}
	}
	return elements
}

func (o object) text(key string) string { return decode[string](o[key]) }

func (o object) flag(key string) bool { return decode[bool](o[key]) }

func (o object) nested(key string) object { return decode[object](o[key]) }

func (o object) list(key string) []object {
	elements := decodeEach[object](decode[[]json.RawMessage](o[key]))
	return slices.DeleteFunc(elements, func(element object) bool { return element == nil })
}

// number reads an integer, which may be encoded as a string.
func (o object) number(key string) int {
	value, err := strconv.Atoi(strings.Trim(string(o[key]), `"`))
	if err != nil {
		return 0
	}
	return value
}

// addresses reads a list of addresses and ranges of addresses, in the order given.
func (o object) addresses(key string) []netip.Addr {
	var all []netip.Addr
	for _, text := range decodeEach[string](decode[[]json.RawMessage](o[key])) {
		all = append(all, expandRange(text)...)
	}
	return all
}

// expandRange parses "a" and "a - b", both ends included, as in the API's property "ips"; nil for any other text.
func expandRange(text string) []netip.Addr {
	from, to, isRange := strings.Cut(text, " - ")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return nil
	}
	if !isRange {
		return []netip.Addr{first}
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || last.Is4() != first.Is4() || last.Less(first) {
		return nil
	}
	var all []netip.Addr
	for addr := first; addr.IsValid() && !last.Less(addr); addr = addr.Next() {
		if len(all) == longestRange {
			return nil
		}
		all = append(all, addr)
	}
	return all
}

// decodeList decodes a list whose elements are identified by the property key. Elements without the key are dropped and
// logged, so that one invalid element never blocks the others.
func decodeList(ctx context.Context, op string, body []byte, key string) ([]object, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, unreadable(op, "", err)
	}
	if raw == nil {
		return nil, unreadable(op, "", errors.New("null instead of a list"))
	}
	elements := slices.DeleteFunc(decodeEach[object](raw), func(o object) bool { return o.text(key) == "" })
	if dropped := len(raw) - len(elements); dropped > 0 {
		klog.FromContext(ctx).Info("Dropped invalid elements of a phoenixNAP API answer",
			"operation", op, "dropped", dropped, "kept", len(elements))
	}
	return elements, nil
}

// decodeNew decodes an object that the request with that name created.
func decodeNew(op, name string, body []byte) (object, error) {
	var value object
	if err := json.Unmarshal(body, &value); err != nil {
		return nil, unreadable(op, name, err)
	}
	if value.text("id") == "" {
		return nil, unreadable(op, name, errors.New("the property id is missing"))
	}
	return value, nil
}

// decodeObject decodes one object and checks that it is the requested one.
func decodeObject(op, id string, body []byte) (object, error) {
	value, err := decodeNew(op, id, body)
	if err != nil {
		return nil, err
	}
	if got := value.text("id"); got != id {
		return nil, unreadable(op, id, errors.New("unexpected object: "+shorten(got)))
	}
	return value, nil
}

// maxMessage and maxComplaints bound the part of an answer in an error; a proxy may answer with an HTML page.
const (
	maxMessage    = 500
	maxComplaints = 5
)

// Error is a request to the API that did not succeed.
type Error struct {
	Op               string        // the operation, such as "delete IP block"
	Object           string        // the ID or name of the object; empty for lists
	StatusCode       int           // the HTTP status of the answer; 0 when there was none
	Message          string        // the API's message, or the reason why there was no answer
	ValidationErrors []string      // the API's errors about the request
	RetryAfter       time.Duration // how long the API requires the client to wait (429), at most 10 minutes; 0 if none

	// freshTag is true for a rejected request of which a tag may be too new.
	freshTag bool
	cause    error
}

// unsent reports whether the request was not sent, without a token or because the API required a pause.
func (e *Error) unsent() bool { return errors.Is(e.cause, ErrUnsent) }

// dryRun reports whether the request was not sent because nothing may be changed.
func (e *Error) dryRun() bool { return errors.Is(e.cause, errDryRun) }

// Error returns the operation, the object and the answer.
func (e *Error) Error() string {
	var said strings.Builder
	if e.dryRun() {
		said.WriteString("dry run: would ")
	}
	said.WriteString(e.Op)
	if e.Object != "" {
		said.WriteString(" " + e.Object)
	}
	switch {
	case e.dryRun():
		return said.String()
	case e.unsent():
		said.WriteString(": not sent")
	case e.StatusCode == 0:
		said.WriteString(": no answer")
	default:
		fmt.Fprintf(&said, ": answer %d %s", e.StatusCode, http.StatusText(e.StatusCode))
	}
	if e.Message != "" {
		said.WriteString(": " + e.Message)
	}
	if len(e.ValidationErrors) > 0 {
		said.WriteString(" (" + strings.Join(e.ValidationErrors, "; ") + ")")
	}
	return said.String()
}

// Unwrap returns the local cause, such as context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.cause }

// IsInaccessible reports whether the API answered 403 or 404. phoenixNAP answers 403 both for objects that do not exist
// and for objects that the credentials may not read, so neither proves that the object does not exist.
func IsInaccessible(err error) bool {
	status := statusOf(err)
	return status == http.StatusForbidden || status == http.StatusNotFound
}

// IsConflict reports whether the API answered 409: the object is in a state that does not allow the change.
func IsConflict(err error) bool { return statusOf(err) == http.StatusConflict }

// IsTagFresh reports whether the API answered 400 to a request with a tag that was made a moment ago: that heals by
// itself.
func IsTagFresh(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.freshTag
}

// IsRefused reports whether certainly nothing was changed: the API answered 4xx, or the request was not sent.
func IsRefused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.dryRun() {
		return false
	}
	return e.unsent() || (e.StatusCode >= 400 && e.StatusCode < 500 && e.StatusCode != http.StatusRequestTimeout)
}

// IsDryRun reports whether the request was not sent because the client may change nothing. The text of the error
// contains what would have been done. It is neither refused nor unanswered.
func IsDryRun(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.dryRun()
}

// IsUnanswered reports whether the request was sent and its outcome is unknown: no, a 5xx or an unclear answer.
func IsUnanswered(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && !e.dryRun() && !IsRefused(err)
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// classify converts the SDK's result into the body of a successful answer or an Error. response is nil when there was
// no answer; when the body was truncated, err is not of the SDK's type.
func classify(op, object string, response *http.Response, err error, redact func(string) string) ([]byte, error) {
	if response == nil {
		return nil, unanswered(op, object, err, redact)
	}
	body, readErr := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return nil, refusal(op, object, response, body, redact)
	}
	var decoded interface{ Body() []byte }
	if err == nil || errors.As(err, &decoded) {
		err = readErr
	}
	if err != nil {
		return nil, unanswered(op, object, err, redact)
	}
	return body, nil
}

func unanswered(op, object string, err error, redact func(string) string) *Error {
	e := &Error{Op: op, Object: object, cause: err}
	if held, ok := errors.AsType[*unsentError](err); ok {
		e.RetryAfter = held.retryAfter
		err = held
	}
	if err != nil && !e.dryRun() {
		e.Message = text.Stable(redact(err.Error()))
	}
	return e
}

func refusal(op, object string, response *http.Response, body []byte, redact func(string) string) *Error {
	e := &Error{Op: op, Object: object, StatusCode: response.StatusCode}
	var answer struct {
		Message          string   `json:"message"`
		ValidationErrors []string `json:"validationErrors"`
	}
	if json.Unmarshal(body, &answer) == nil {
		e.Message = redact(shorten(answer.Message))
		for _, complaint := range answer.ValidationErrors[:min(len(answer.ValidationErrors), maxComplaints)] {
			e.ValidationErrors = append(e.ValidationErrors, redact(shorten(complaint)))
		}
	}
	if response.StatusCode == http.StatusTooManyRequests {
		e.RetryAfter = retryAfter(response.Header, time.Now())
	}
	return e
}

// unreadable returns the error for a 2xx answer that cannot be parsed: the request was executed.
func unreadable(op, object string, cause error) *Error {
	return &Error{Op: op, Object: object, StatusCode: http.StatusOK, Message: "invalid answer: " + cause.Error(),
		cause: cause}
}

func shorten(long string) string { return text.Cut(strings.ToValidUTF8(long, ""), maxMessage, "…") }
