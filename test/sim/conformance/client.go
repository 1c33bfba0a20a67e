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

// answer is an HTTP answer.
type answer struct {
	code int
	raw  []byte
}

// object returns a body that is an object; empty when it is not.
func (a answer) object() map[string]any {
	var o map[string]any
	if json.Unmarshal(a.raw, &o) != nil {
		return map[string]any{}
	}
	return o
}

// list returns a body that is a list of objects.
func (a answer) list() []map[string]any {
	var l []map[string]any
	if json.Unmarshal(a.raw, &l) != nil {
		return nil
	}
	return l
}

// accepted reports whether the service took what it was asked.
func (a answer) accepted() bool { return a.code >= 200 && a.code < 300 }

// String is the code with what the service said about it.
func (a answer) String() string {
	body := a.object()
	parts := []any{a.code}
	if message, told := body["message"]; told {
		parts = append(parts, message)
	}
	if faults, told := body["validationErrors"]; told {
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
func (a *Account) do(ctx context.Context, method, path string, body any) (answer, error) {
	if a.token == "" {
		if err := a.authenticate(ctx); err != nil {
			return answer{}, err
		}
	}
	got, err := a.ask(ctx, a.token, method, path, body)
	if err != nil || got.code != http.StatusUnauthorized {
		return got, err
	}
	if err := a.authenticate(ctx); err != nil {
		return answer{}, err
	}
	return a.ask(ctx, a.token, method, path, body)
}

func (a *Account) get(ctx context.Context, path string) (answer, error) {
	return a.do(ctx, http.MethodGet, path, nil)
}

func (a *Account) authenticate(ctx context.Context) error {
	got, err := a.login(ctx, a.ClientSecret, allScopes)
	if err != nil {
		return err
	}
	if !got.accepted() {
		return fmt.Errorf("the token endpoint %s refuses the client %s: %d: check clientID and clientSecret",
			a.TokenURL, a.ClientID, got.code)
	}
	a.token = text(got.object(), "access_token")
	return nil
}

// login asks for a token.
func (a *Account) login(ctx context.Context, secret, scope string) (answer, error) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {a.ClientID}, "client_secret": {secret},
		"scope": {scope}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return a.send(request)
}

func (a *Account) ask(ctx context.Context, token, method, path string, body any) (answer, error) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.BaseURL, "/")+path, content)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return a.send(request)
}

func (a *Account) send(request *http.Request) (answer, error) {
	a.http.Timeout = time.Minute
	response, err := a.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	return answer{code: response.StatusCode, raw: raw}, err
}
