package pnap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxMessage bounds what an error repeats of an answer; a proxy may answer with a page.
const maxMessage = 500

// Error is a request to the API that did not succeed.
type Error struct {
	// Op is what was asked, such as "delete IP block".
	Op string
	// Object is the ID or name that it was asked of; empty for lists.
	Object string
	// StatusCode is the HTTP status of the answer; 0 when there was none.
	StatusCode int
	// Message is the API's own message, or what went wrong on the way.
	Message string
	// ValidationErrors are the API's complaints about the request.
	ValidationErrors []string
	// RetryAfter is how long the API wants to be left alone (429); 0 when it did not say.
	RetryAfter time.Duration

	// unsent tells that the request never left, for want of a token or because the API asked for a pause.
	unsent bool
	// dryRun tells that the request never left because nothing may be changed.
	dryRun bool
	cause  error
}

// Error says what was asked of what, and what came back.
func (e *Error) Error() string {
	var text strings.Builder
	if e.dryRun {
		text.WriteString("dry run: would ")
	}
	text.WriteString(e.Op)
	if e.Object != "" {
		text.WriteString(" " + e.Object)
	}
	switch {
	case e.dryRun:
		return text.String()
	case e.unsent:
		text.WriteString(": not sent")
	case e.StatusCode == 0:
		text.WriteString(": no answer")
	default:
		fmt.Fprintf(&text, ": answer %d %s", e.StatusCode, http.StatusText(e.StatusCode))
	}
	if e.Message != "" {
		text.WriteString(": " + e.Message)
	}
	if len(e.ValidationErrors) > 0 {
		text.WriteString(" (" + strings.Join(e.ValidationErrors, "; ") + ")")
	}
	return text.String()
}

// Unwrap returns the cause on this side of the wire, such as context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.cause }

// IsInaccessible tells that the API answered 403 or 404. phoenixNAP answers 403 for what does not
// exist as well as for what the credentials may not see, so neither alone proves that it is gone.
func IsInaccessible(err error) bool {
	status := statusOf(err)
	return status == http.StatusForbidden || status == http.StatusNotFound
}

// IsConflict tells that the API answered 409: the object is in a state that does not allow the change.
func IsConflict(err error) bool { return statusOf(err) == http.StatusConflict }

// IsRefused tells that certainly nothing was done: the API answered 4xx, or the request was never sent.
func IsRefused(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	if e.dryRun {
		return false
	}
	return e.unsent || (e.StatusCode >= 400 && e.StatusCode < 500 && e.StatusCode != http.StatusRequestTimeout)
}

// IsDryRun tells that the request was not sent because the client may change nothing. The text of the
// error says what would have been done. It is neither refused nor unanswered.
func IsDryRun(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.dryRun
}

// IsUnanswered tells that the request was sent and its outcome is unknown: no answer, 5xx, or an
// answer that says neither yes nor no.
func IsUnanswered(err error) bool {
	var e *Error
	return errors.As(err, &e) && !e.dryRun && !IsRefused(err)
}

func statusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

// classify turns what the SDK returned into the body of a successful answer or an Error. It is the
// only place that does. response is nil when nothing came back; when the body broke off, err is not
// of the SDK's own kind.
func classify(op, object string, response *http.Response, err error, redact func(string) string) ([]byte, error) {
	if response == nil {
		return nil, unanswered(op, object, err, redact)
	}
	body, readErr := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return nil, refusal(op, object, response, body, redact)
	}
	var decoded interface{ Body() []byte }
	if err != nil && !errors.As(err, &decoded) {
		return nil, unanswered(op, object, err, redact)
	}
	if readErr != nil {
		return nil, unanswered(op, object, readErr, redact)
	}
	return body, nil
}

func unanswered(op, object string, err error, redact func(string) string) *Error {
	e := &Error{Op: op, Object: object, unsent: errors.Is(err, ErrUnsent), cause: err}
	if err != nil {
		e.Message = redact(err.Error())
	}
	var held *unsentError
	if errors.As(err, &held) {
		e.RetryAfter, e.Message = held.retryAfter, redact(held.Error())
	}
	if errors.Is(err, errDryRun) {
		e.dryRun, e.Message = true, ""
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
		for _, complaint := range answer.ValidationErrors {
			e.ValidationErrors = append(e.ValidationErrors, redact(shorten(complaint)))
		}
	}
	if response.StatusCode == http.StatusTooManyRequests {
		e.RetryAfter = retryAfter(response.Header, time.Now())
	}
	return e
}

// unreadable is the error for an answer of 2xx that cannot be understood: the request was carried out.
func unreadable(op, object string, cause error) *Error {
	return &Error{Op: op, Object: object, StatusCode: http.StatusOK, Message: "the answer cannot be read: " + cause.Error(), cause: cause}
}

func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}
