// Package config reads the controller's options: flag before environment before secret before default,
// all errors at once.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Config is what the controller needs to know. It is valid: Load refuses anything else.
type Config struct {
	// Credentials returns the client ID and secret, read anew when the secret file has changed.
	Credentials func() (id, secret string, err error)
	// Location is the site of new IP blocks, such as ASH; empty means that each Service names its own.
	Location string
	// BaseURL is the root of the phoenixNAP API.
	BaseURL string
	// TokenURL is the OAuth2 token endpoint.
	TokenURL string
	// LoadBalancer says who announces addresses on which public network; zero means no load balancers.
	LoadBalancer LoadBalancer
	// MaxIPBlocks is the most blocks that may be bought; 0 means as many as the network holds.
	MaxIPBlocks int
	// AnnotationIPLocation is the name of the Service annotation that names a location.
	AnnotationIPLocation string
	// ServiceNodeSelector selects the Nodes that may carry load-balancer traffic.
	ServiceNodeSelector labels.Selector

	clientID string
}

// LoadBalancer is the parsed load-balancer URL.
type LoadBalancer struct {
	// Announcer is contract.AnnouncerKubeVIP or contract.AnnouncerAgent; empty when load balancers are off.
	Announcer string
	// NetworkID is the ID of the public network.
	NetworkID string
}

// Enabled tells whether Services of type LoadBalancer are served.
func (l LoadBalancer) Enabled() bool { return l.Announcer != "" }

// String shows the configuration without its secrets.
func (c *Config) String() string {
	announcer := c.LoadBalancer.Announcer
	if announcer == "" {
		announcer = contract.AnnouncerNone
	}
	return fmt.Sprintf("clientID=%s clientSecret=[redacted] location=%q baseURL=%s tokenURL=%s announcer=%s publicNetwork=%q maxIPBlocks=%d annotationIPLocation=%s serviceNodeSelector=%q",
		mask(c.clientID), c.Location, c.BaseURL, c.TokenURL, announcer, c.LoadBalancer.NetworkID, c.MaxIPBlocks, c.AnnotationIPLocation, c.ServiceNodeSelector)
}

// GoString shows the same as String, so that %#v does not look behind it.
func (c *Config) GoString() string { return c.String() }

// mask keeps enough of an identifier to recognise it.
func mask(id string) string {
	if len(id) <= 8 {
		return "[redacted]"
	}
	return id[:4] + "…"
}

// Load reads all options. secretPath is the value of --cloud-config; flags are the options set on the
// command line; getenv is os.Getenv. The error joins one sentence for each thing that is wrong.
func Load(secretPath string, flags *Flags, getenv func(string) string) (*Config, error) {
	if secretPath == "" {
		return nil, errors.New("no cloud config given: set --cloud-config to the path of the secret with clientID and clientSecret")
	}
	secret, err := readSecret(secretPath)
	if secret == nil {
		return nil, err
	}
	source := source{flags: flags, getenv: getenv, secret: secret}
	config, problems := parse(source)
	problems = append(problems, unsupported(source)...)
	if err != nil {
		problems = append([]error{err}, problems...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	config.Credentials = newCredentials(secretPath, getenv).get
	return config, nil
}

// parse reads every option that the controller acts on.
func parse(s source) (*Config, []error) {
	p := parser{source: s}
	config := &Config{
		clientID:             p.required(clientID),
		Location:             p.location(),
		LoadBalancer:         parsed(&p, loadBalancer, LoadBalancer{}, ParseLoadBalancer),
		MaxIPBlocks:          parsed(&p, maxIPBlocks, 0, parseCount),
		AnnotationIPLocation: parsed(&p, annotationIPLocation, contract.ServiceIPLocation, parseAnnotation),
		ServiceNodeSelector:  parsed(&p, serviceNodeSelector, labels.Everything(), parseSelector),
	}
	p.required(clientSecret)
	config.BaseURL = parsed(&p, baseURL, pnap.DefaultBaseURL, parseURL)
	config.TokenURL = parsed(&p, tokenURL, defaultTokenURL(config.BaseURL), parseURL)
	return config, p.problems
}

// defaultTokenURL is the official realm for the official API; a base URL of one's own is taken to
// serve the token endpoint too.
func defaultTokenURL(base string) string {
	u, err := url.Parse(base)
	if err != nil || base == pnap.DefaultBaseURL {
		return pnap.DefaultTokenURL
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: pnap.TokenPath}).String()
}

// readFile is os.ReadFile with an error that says what to do.
func readFile(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read cloud config: %w; set --cloud-config to the path of the secret with clientID and clientSecret", err)
	}
	return raw, nil
}
