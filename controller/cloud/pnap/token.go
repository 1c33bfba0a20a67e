package pnap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	// refreshMargin is how long before its end a token is replaced.
	refreshMargin = 30 * time.Second
	// assumedLifetime applies to an answer without a lifetime. Tokens of phoenixNAP are valid for 15 minutes.
	assumedLifetime = 5 * time.Minute
	// tokenKey identifies the token request in backoff.
	tokenKey = "token"
)

// tokenSource stores the token that all requests share.
type tokenSource struct {
	Config
	client   *http.Client
	fetching chan struct{} // held while a token is fetched, so that there is one request for all waiting callers

	mu         sync.Mutex
	token      string
	id, secret string
	renewAt    time.Time
	failed     string // failed and refusal are the last rejected credentials, and the error
	refusal    error
	backoff    *backoff
	previous   string // the previous token; an error in progress may still contain it
	asked      string // the secret of the last exchange, which an error may contain, too
}

func newTokenSource(config Config) *tokenSource {
	s := &tokenSource{
		Config:   config,
		fetching: make(chan struct{}, 1),
		backoff:  newBackoff(config.Now),
	}
	s.client = &http.Client{
		Timeout: config.HTTPTimeout, CheckRedirect: refuseRedirect,
		Transport: &loggingTransport{base: baseTransport(), redact: s.redact, now: config.Now},
	}
	return s
}

// get returns a token that is valid as far as the client knows.
func (s *tokenSource) get(ctx context.Context) (string, error) {
	if token, ok := s.cached(); ok {
		return token, nil
	}
	select {
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token, ok := s.cached(); ok {
		return token, nil
	}
	return s.fetch(ctx)
}

// cached returns the current token unless it expires soon or the credentials have changed. When the credentials cannot
// be read, a valid token is still used.
func (s *tokenSource) cached() (string, bool) {
	id, secret, err := s.Credentials()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || !s.Now().Before(s.renewAt) {
		return "", false
	}
	if err == nil && (id != s.id || secret != s.secret) {
		return "", false
	}
	return s.token, true
}

func (s *tokenSource) fetch(ctx context.Context) (string, error) {
	id, secret, err := s.Credentials()
	if err != nil {
		return "", fmt.Errorf("get credentials: %w", err)
	}
	s.mu.Lock()
	s.asked = secret // not s.secret: the token belongs to other credentials until the exchange succeeds
	s.mu.Unlock()
	if err := s.justFailed(id, secret); err != nil {
		return "", err
	}

	asked := s.Now()
	began := time.Now() // the library computes the expiry of the token with the real clock
	token, err := s.exchange(ctx, id, secret)
	s.remember(ctx, id, secret, err)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.previous, s.token, s.id, s.secret = s.token, token.AccessToken, id, secret
	var lifetime time.Duration
	if !token.Expiry.IsZero() {
		lifetime = token.Expiry.Sub(began).Round(time.Second)
	}
	s.renewAt = asked.Add(usefulLife(lifetime))
	return s.token, nil
}

// justFailed returns the error of the same credentials if they failed too recently to retry.
func (s *tokenSource) justFailed(id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pause, _ := s.backoff.remaining(tokenKey); pause == 0 || s.failed != id+"\n"+secret {
		return nil
	}
	return s.refusal
}

// remember records the outcome of an exchange, unless the caller gave up.
func (s *tokenSource) remember(ctx context.Context, id, secret string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.backoff.succeeded(tokenKey)
		s.failed = ""
		s.refusal = nil
	case !errors.Is(ctx.Err(), context.Canceled):
		s.backoff.failed(tokenKey, "no token")
		s.failed = id + "\n" + secret
		s.refusal = err
	}
}

// exchange requests all scopes in the SDK's documentation. An account with fewer scopes may get fewer, or an error:
// then it requests a token without scopes, which means all scopes of the account.
func (s *tokenSource) exchange(ctx context.Context, id, secret string) (*oauth2.Token, error) {
	config := clientcredentials.Config{
		ClientID:     id,
		ClientSecret: secret,
		TokenURL:     s.TokenURL,
		Scopes:       []string{"bmc", "bmc.read", "tags", "tags.read"},
		AuthStyle:    oauth2.AuthStyleInParams,
	}
	ctx = context.WithValue(withOperation(ctx, "get token"), oauth2.HTTPClient, s.client)
	token, err := config.Token(ctx)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.ErrorCode == "invalid_scope" {
		config.Scopes = nil
		token, err = config.Token(ctx)
	}
	if err != nil {
		return nil, explainToken(err, s.TokenURL)
	}
	return token, nil
}

// explainToken describes a failure without the answer's body, which may contain the request.
func explainToken(err error, url string) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return fmt.Errorf("get a token from %s: %w", url, err)
	}
	status := "no status"
	if refused.Response != nil {
		status = refused.Response.Status
	}
	if refused.ErrorCode != "" {
		status += ", " + shorten(refused.ErrorCode)
	}
	if refused.ErrorCode == "invalid_client" || refused.ErrorCode == "unauthorized_client" ||
		refused.Response != nil && refused.Response.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("get a token from %s: answer %s: %w", url, status, errCredentials)
	}
	return fmt.Errorf("get a token from %s: answer %s", url, status)
}

func usefulLife(lifetime time.Duration) time.Duration {
	if lifetime <= 0 {
		lifetime = assumedLifetime
	}
	return lifetime - min(refreshMargin, lifetime/4)
}

// invalidate removes token, unless another one has already replaced it.
func (s *tokenSource) invalidate(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.previous, s.token = s.token, ""
	}
}

// redact removes the secret and the tokens from a text that is about to leave the package.
func (s *tokenSource) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range []string{s.asked, s.secret, s.token, s.previous} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	return text
}
