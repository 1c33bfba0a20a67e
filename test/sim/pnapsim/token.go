package pnapsim

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// tokenPath is the token endpoint of the official realm (OAuth 2.0 client credentials, RFC 6749 4.4).
const tokenPath = "/auth/realms/BMC/protocol/openid-connect/token"

// client is an API client with its credentials.
type client struct {
	ClientSeed
	account string
}

type token struct {
	client  string
	scopes  []string
	expires time.Time
	refused time.Time // first refused, with an answer that arrived
}

// oauthError is the error body of RFC 6749 5.2.
func oauthError(status int, code, description string) reply {
	return reply{status: status, body: object{"error": code, "error_description": description}}
}

// issueToken answers the token endpoint; form is the request's body.
func (s *Sim) issueToken(r *http.Request, form url.Values) (reply, string) {
	switch form.Get("grant_type") {
	case "client_credentials":
	case "":
		return oauthError(http.StatusBadRequest, "invalid_request", "Missing form parameter: grant_type"), ""
	default:
		return oauthError(http.StatusBadRequest, "unsupported_grant_type", "Unsupported grant_type"), ""
	}
	id := form.Get("client_id")
	secret := form.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok {
		id = unescape(user)
		secret = unescape(password)
	}
	c := s.clients[id]
	if c == nil || subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) != 1 {
		if s.switches.TokenRefusal == http.StatusBadRequest {
			return oauthError(http.StatusBadRequest, "unauthorized_client", "Invalid client secret"), ""
		}
		return oauthError(http.StatusUnauthorized, "invalid_client", "Invalid client or Invalid client credentials"), ""
	}
	return s.grant(c, strings.Fields(form.Get("scope"))), c.ID
}

// unescape undoes the form encoding that RFC 6749 2.3.1 asks for in Basic credentials.
func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

func (s *Sim) grant(c *client, asked []string) reply {
	granted := slices.Clone(c.Scopes)
	if len(asked) > 0 {
		granted = slices.DeleteFunc(granted, func(scope string) bool { return !slices.Contains(asked, scope) })
	}
	value := s.randomHex(32)
	s.tokens[value] = &token{client: c.ID, scopes: granted, expires: s.now.Add(s.clientTime(s.cfg.TokenLifetime))}
	return reply{status: http.StatusOK, body: object{
		"access_token":       value,
		"expires_in":         int(s.cfg.TokenLifetime.Seconds()),
		"refresh_expires_in": 0,
		"token_type":         "Bearer",
		"not-before-policy":  0,
		"scope":              strings.Join(granted, " "),
	}}
}

// authenticate finds the client of a request by its bearer token.
func (s *Sim) authenticate(r *http.Request) (*client, *token, bool) {
	value, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	t := s.tokens[value]
	if !ok || t == nil {
		return nil, nil, false
	}
	c := s.clients[t.client]
	return c, t, c != nil && s.now.Before(t.expires)
}

// judgeToken reports a token that is used after its client received the answer that refused it: a failure of another
// kind, or an answer that was lost, does not inform it.
func (s *Sim) judgeToken(c *client, t *token) {
	since := s.now.Sub(t.refused)
	if c != nil && c.Judged && !t.refused.IsZero() && since >= s.clientTime(tokenGrace) {
		s.violate(c, "stale-token", "a token is used %s after it was first refused", since)
	}
}

// RevokeTokens ends all tokens of a client before their time, or those of all clients with an empty ID.
func (s *Sim) RevokeTokens(clientID string) {
	defer s.enter()()
	for _, t := range s.tokens {
		if clientID == "" || t.client == clientID {
			t.expires = s.now
		}
	}
}
