// Package pnap is the client of the phoenixNAP Bare Metal Cloud API, and the only package that uses its SDK and tokens.
package pnap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/locationapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
	"k8s.io/klog/v2"
)

const (
	// DefaultBaseURL is the root of the official API.
	DefaultBaseURL = "https://api.phoenixnap.com"
	// DefaultTokenURL is the token endpoint of the official realm.
	DefaultTokenURL = "https://auth.phoenixnap.com" + TokenPath
	// TokenPath is the path of the token endpoint on a host that serves the realm BMC.
	TokenPath = "/auth/realms/BMC/protocol/openid-connect/token"

	defaultHTTPTimeout = 30 * time.Second
)

// Config configures a Client.
type Config struct {
	BaseURL  string // the root of /bmc/v1, /ips/v1 and the others; empty means DefaultBaseURL
	TokenURL string // the OAuth2 token endpoint; empty means DefaultTokenURL
	// Credentials returns the client ID and secret. It is called before each request, so it may follow a file that
	// changes; a changed pair leads to a new token.
	Credentials func() (id, secret string, err error)
	HTTPTimeout time.Duration // bounds each exchange, reading of the body included; 0 means 30 seconds
	UserAgent   string        // sent with each request
	DryRun      bool          // prevents every request that changes something; see IsDryRun
	// RequestsPerSecond is the average rate limit of requests; bursts may be twice as large. A request above the limit
	// waits, at most until the context or HTTPTimeout ends. 0 means no limit.
	RequestsPerSecond int
	// Wrap, when set, wraps the transport that sends requests, after tokens and pauses. If errors.Is finds ErrUnsent in
	// its error, the request counts as not sent.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Fence, when set, is called immediately before a request that changes something is sent; its error is the reason
	// why the request was not sent. It is called again before each write to the connection of such requests; when it
	// returns an error only then, the outcome of the request is unknown.
	Fence   func() error
	Metrics *Metrics         // count requests, once registered; nil disables them
	Now     func() time.Time // the clock for the lifetime of tokens and for Retry-After; nil means time.Now
}

// Client is the phoenixNAP API of one account. It is safe for concurrent use.
type Client struct {
	tokens    *tokenSource
	health    *condition
	dryRun    bool
	now       func() time.Time
	tagNames  tagMemory
	servers   *bmcapi.APIClient
	blocks    *ipapi.APIClient
	networks  *networkapi.APIClient
	tags      *tagapi.APIClient
	locations *locationapi.APIClient
}

// New returns a client. It starts nothing and sends no request: the first request fetches the first token.
func New(config Config) (*Client, error) {
	if config.Credentials == nil {
		return nil, errors.New("phoenixNAP client: no credentials configured")
	}
	config = withDefaults(config)
	for name, raw := range map[string]string{"base URL": config.BaseURL, "token URL": config.TokenURL} {
		if err := checkURL(name, raw); err != nil {
			return nil, err
		}
	}
	config.Metrics.start()
	tokens := newTokenSource(config)
	health := &condition{now: config.Now}
	client := assemble(strings.TrimSuffix(config.BaseURL, "/"), &http.Client{
		Timeout: config.HTTPTimeout, Transport: newTransport(config, tokens, health), CheckRedirect: refuseRedirect,
	})
	client.tokens = tokens
	client.health = health
	client.now = config.Now
	client.dryRun = config.DryRun
	return client, nil
}

func withDefaults(config Config) Config {
	config.BaseURL = cmp.Or(config.BaseURL, DefaultBaseURL)
	config.TokenURL = cmp.Or(config.TokenURL, DefaultTokenURL)
	config.HTTPTimeout = cmp.Or(config.HTTPTimeout, defaultHTTPTimeout)
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	if config.Now == nil {
		config.Now = time.Now
	}
	return config
}

func checkURL(name, raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("phoenixNAP client: the %s is not an http or https URL without a user name", name)
	}
	return nil
}

// assemble creates one SDK client for each API; all share httpClient and with it the token.
func assemble(base string, httpClient *http.Client) *Client {
	servers := bmcapi.NewConfiguration()
	servers.HTTPClient = httpClient
	servers.Servers = bmcapi.ServerConfigurations{{URL: base + "/bmc/v1"}}

	blocks := ipapi.NewConfiguration()
	blocks.HTTPClient = httpClient
	blocks.Servers = ipapi.ServerConfigurations{{URL: base + "/ips/v1"}}

	networks := networkapi.NewConfiguration()
	networks.HTTPClient = httpClient
	networks.Servers = networkapi.ServerConfigurations{{URL: base + "/networks/v1"}}

	tags := tagapi.NewConfiguration()
	tags.HTTPClient = httpClient
	tags.Servers = tagapi.ServerConfigurations{{URL: base + "/tag-manager/v1"}}

	locations := locationapi.NewConfiguration()
	locations.HTTPClient = httpClient
	locations.Servers = locationapi.ServerConfigurations{{URL: base + "/location-api/v1"}}

	return &Client{
		servers:   bmcapi.NewAPIClient(servers),
		blocks:    ipapi.NewAPIClient(blocks),
		networks:  networkapi.NewAPIClient(networks),
		tags:      tagapi.NewAPIClient(tags),
		locations: locationapi.NewAPIClient(locations),
	}
}

// operationKey is the context key of the operation's name.
type operationKey struct{}

// withOperation stores the operation's name in ctx, for metrics and messages.
func withOperation(ctx context.Context, op string) context.Context {
	return context.WithValue(ctx, operationKey{}, op)
}

func operationOf(ctx context.Context) string {
	if op, ok := ctx.Value(operationKey{}).(string); ok {
		return op
	}
	return "other"
}

// request sends one request of the SDK and returns the body of the answer. The value that the SDK decoded is not used:
// the SDK rejects an object, and with it the whole list, that lacks a single required property, so the package decodes
// the body itself. ctx contains the operation.
func request[V any](ctx context.Context, c *Client, name string,
	execute func() (V, *http.Response, error)) ([]byte, error) {
	_, response, err := execute() //nolint:bodyclose // the SDK has closed it and left a copy in memory
	op := operationOf(ctx)
	body, failure := classify(op, name, response, err, c.tokens.redact)
	logger := klog.FromContext(ctx).V(levelOperations)
	if failure != nil {
		logger.Info("phoenixNAP API request failed", "operation", op, "object", name, "err", failure)
		return nil, failure
	}
	logger.Info("phoenixNAP API request", "operation", op, "object", name, "status", response.StatusCode, "bytes",
		len(body))
	return body, nil
}

// send sends a request whose answer has no content of interest.
func send[V any](ctx context.Context, c *Client, name string, execute func() (V, *http.Response, error)) error {
	_, err := request(ctx, c, name, execute)
	return err
}

// invalid records that an answer cannot be used, and returns the error.
func (c *Client) invalid(ctx context.Context, err error) error {
	c.health.failed(ctx, c.tokens.redact(err.Error()))
	return err
}

// get requests the object with that ID.
func get[T, V any](ctx context.Context, c *Client, id string, decode func(object) T,
	execute func() (V, *http.Response, error)) (T, error) {
	var none T
	body, err := request(ctx, c, id, execute)
	if err != nil {
		return none, err
	}
	element, err := decodeObject(operationOf(ctx), id, body)
	if err != nil {
		return none, c.invalid(ctx, err)
	}
	return decode(element), nil
}

// list requests a list whose elements are identified by the property key.
func list[T, V any](ctx context.Context, c *Client, name, key string, decode func(object) T,
	execute func() (V, *http.Response, error)) ([]T, error) {
	body, err := request(ctx, c, name, execute)
	if err != nil {
		return nil, err
	}
	elements, err := decodeList(ctx, operationOf(ctx), body, key)
	if err != nil {
		return nil, c.invalid(ctx, err)
	}
	decoded := make([]T, len(elements))
	for i, element := range elements {
		decoded[i] = decode(element)
	}
	return decoded, nil
}

// Locations returns the codes of the locations that phoenixNAP offers, such as ASH.
func (c *Client) Locations(ctx context.Context) ([]string, error) {
	ctx = withOperation(ctx, "list locations")
	return list(ctx, c, "", "location", func(o object) string { return o.text("location") },
		c.locations.LocationsAPI.GetLocations(ctx).Execute)
}
