package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// allScopes are those that the controller asks for.
const allScopes = "bmc bmc.read tags tags.read"

// Account is an account of phoenixNAP. It speaks plain HTTP: what is asked is what the service answers, not what a
// client library makes of it.
type Account struct {
	// BaseURL is the root of the API, TokenURL the token endpoint.
	BaseURL, TokenURL string
	// ClientID and ClientSecret are OAuth 2.0 client credentials.
	ClientID, ClientSecret string

	http  http.Client
	token string
}

// answer is an HTTP answer, or the error that came instead.
type answer struct {
	code int
	raw  []byte
	err  error
}

// object returns a body that is an object; none when it is not.
func (a answer) object() map[string]any {
	var o map[string]any
	_ = json.Unmarshal(a.raw, &o)
	return o
}

// list returns a body that is a list of objects.
func (a answer) list() []map[string]any {
	var l []map[string]any
	_ = json.Unmarshal(a.raw, &l)
	return l
}

// accepted reports whether the service took what it was asked.
func (a answer) accepted() bool { return a.err == nil && a.code >= 200 && a.code < 300 }

// String is the code with what the service said about it.
func (a answer) String() string {
	body := a.object()
	parts := []any{a.code}
	if message, ok := body["message"]; ok {
		parts = append(parts, message)
	}
	if faults, ok := body["validationErrors"]; ok {
		parts = append(parts, faults)
	}
	return strings.TrimSuffix(fmt.Sprintln(parts...), "\n")
}

// text returns a property that is a string.
func text(o map[string]any, key string) string {
	s, _ := o[key].(string)
	return s
}

// objects returns a property that is a list of objects.
func objects(o map[string]any, key string) []map[string]any {
	var found []map[string]any
	all, _ := o[key].([]any)
	for _, each := range all {
		if inner, ok := each.(map[string]any); ok {
			found = append(found, inner)
		}
	}
	return found
}

// do asks with a token of all scopes. A token that ran out is replaced once.
func (a *Account) do(ctx context.Context, method, path string, body any) answer {
	if a.token != "" {
		if got := a.ask(ctx, a.token, method, path, body); got.code != http.StatusUnauthorized {
			return got
		}
	}
	if err := a.authenticate(ctx); err != nil {
		return answer{err: err}
	}
	return a.ask(ctx, a.token, method, path, body)
}

func (a *Account) get(ctx context.Context, path string) answer {
	return a.do(ctx, http.MethodGet, path, nil)
}

func (a *Account) authenticate(ctx context.Context) error {
	got := a.login(ctx, a.ClientSecret, allScopes)
	if got.err == nil && !got.accepted() {
		return fmt.Errorf("the token endpoint %s refuses the client %s: %d: check clientID and clientSecret",
			a.TokenURL, a.ClientID, got.code)
	}
	a.token = text(got.object(), "access_token")
	return got.err
}

// login asks for a token.
func (a *Account) login(ctx context.Context, secret, scope string) answer {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {a.ClientID}, "client_secret": {secret},
		"scope": {scope}}
	return a.send(ctx, http.MethodPost, a.TokenURL, strings.NewReader(form.Encode()),
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

func (a *Account) ask(ctx context.Context, token, method, path string, body any) answer {
	header := http.Header{"Authorization": {"Bearer " + token}}
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{err: err}
		}
		content = bytes.NewReader(raw)
		header.Set("Content-Type", "application/json")
	}
	return a.send(ctx, method, strings.TrimSuffix(a.BaseURL, "/")+path, content, header)
}

func (a *Account) send(ctx context.Context, method, at string, content io.Reader, header http.Header) answer {
	request, err := http.NewRequestWithContext(ctx, method, at, content)
	if err != nil {
		return answer{err: err}
	}
	request.Header = header
	a.http.Timeout = time.Minute
	response, err := a.http.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	return answer{code: response.StatusCode, raw: raw, err: err}
}
