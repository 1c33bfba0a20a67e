// Package config reads the controller's options: a flag overrides the environment, which overrides the secret, which
// overrides the default. It reports all errors at once.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Values of Config.NodeAddress.
const (
	// NodeAddressBlock gives each node an address of the node block.
	NodeAddressBlock = "block"
	// NodeAddressNone gives nodes no address of the public network: their interfaces have a link-local address.
	NodeAddressNone = "none"
)

const (
	defaultBlockSize   = "/29"
	defaultOrphanGrace = time.Hour
	defaultRequestRate = 10
)

// Config is the controller's configuration. It is valid: Load rejects anything else.
type Config struct {
	// Credentials returns the client ID and secret. It reads the secret file again when the file has changed.
	Credentials func() (id, secret string, err error)
	// Location is the location of new IP blocks, such as ASH; empty means that each Service sets its own.
	Location string
	// BaseURL is the root of the phoenixNAP API.
	BaseURL string
	// TokenURL is the OAuth2 token endpoint.
	TokenURL string
	// LoadBalancer is the announcer of addresses and the public network; zero means no load balancers.
	LoadBalancer LoadBalancer
	// NodeIPBlock is the ID of the block from which nodes get their own addresses; empty when the user did not bring
	// one.
	NodeIPBlock string
	// NodeAddress is NodeAddressBlock or NodeAddressNone.
	NodeAddress string
	// ManageMembership enables joining servers to the public network, and removing those servers again.
	ManageMembership bool
	// Allocation is how Services without an annotation get their address: contract.AllocationDedicated or
	// contract.AllocationShared.
	Allocation string
	// BlockSize is the prefix length of new blocks with its slash: "/28", "/29" or "/30".
	BlockSize string
	// OwnBlocks are the IDs of blocks that Services may request although the cluster did not buy them.
	OwnBlocks []string
	// MaxIPBlocks is the maximum number of blocks to buy; 0 means as many as the network can have.
	MaxIPBlocks int
	// AnnotationIPLocation is the name of the Service annotation that sets a location.
	AnnotationIPLocation string
	// DryRun makes the controller report changes instead of making them.
	DryRun bool
	// CollectOrphans enables the deletion of blocks of this cluster whose Service no longer exists.
	CollectOrphans bool
	// OrphanGrace is how long a block must have been an orphan before it is deleted.
	OrphanGrace time.Duration
	// ControlPlaneEndpoint enables the Service in front of the API servers.
	ControlPlaneEndpoint bool
	// APIServerPort is the port of that Service, 0 to 65535; 0 means the port of the API servers.
	APIServerPort int
	// RequestsPerSecond is the average rate limit of requests to the phoenixNAP API.
	RequestsPerSecond int
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

// Enabled reports whether Services of type LoadBalancer are served.
func (l LoadBalancer) Enabled() bool { return l.Announcer != "" }

// String shows the configuration without its secrets.
func (c *Config) String() string {
	announcer := c.LoadBalancer.Announcer
	if announcer == "" {
		announcer = contract.AnnouncerNone
	}
	return fmt.Sprintf("clientID=%s clientSecret=[redacted] location=%q baseURL=%s tokenURL=%s announcer=%s ",
		mask(c.clientID), c.Location, c.BaseURL, c.TokenURL, announcer) +
		fmt.Sprintf("publicNetwork=%q nodeIPBlock=%q nodeAddress=%s manageMembership=%t ",
			c.LoadBalancer.NetworkID, c.NodeIPBlock, c.NodeAddress, c.ManageMembership) +
		fmt.Sprintf("ipAllocation=%s ipBlockSize=%s ownIPBlocks=%q maxIPBlocks=%d dryRun=%t collectOrphans=%t "+
			"orphanGrace=%s ",
			c.Allocation, c.BlockSize, c.OwnBlocks, c.MaxIPBlocks, c.DryRun, c.CollectOrphans, c.OrphanGrace) +
		fmt.Sprintf("annotationIPLocation=%s controlPlaneEndpoint=%t apiServerPort=%d serviceNodeSelector=%q "+
			"apiRequestsPerSecond=%d",
			c.AnnotationIPLocation, c.ControlPlaneEndpoint, c.APIServerPort, c.ServiceNodeSelector, c.RequestsPerSecond)
}

// GoString returns the same as String, so that %#v does not print secrets.
func (c *Config) GoString() string { return c.String() }

// mask keeps enough of an identifier to recognize it.
func mask(id string) string {
	if len(id) <= 8 {
		return "[redacted]"
	}
	return id[:4] + "…"
}

// Load reads all options. secretPath is the value of --cloud-config; flags are the options set on the
// command line; getenv is os.Getenv. The error joins one sentence for each problem.
func Load(secretPath string, flags *Flags, getenv func(string) string) (*Config, error) {
	if secretPath == "" {
		return nil,
			errors.New("no cloud config given: set --cloud-config to the path of the secret with clientID and " +
				"clientSecret")
	}
	secret, err := readSecret(secretPath)
	if secret == nil {
		return nil, err
	}
	source := source{flags: flags, getenv: getenv, secret: secret}
	config, problems := parse(source)
	problems = append(problems, contradictions(source, config)...)
	if err != nil {
		problems = append([]error{err}, problems...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	config.Credentials = newCredentials(secretPath, getenv).get
	return config, nil
}

// parse reads every option; contradictions checks the combinations.
func parse(s source) (*Config, []error) {
	p := parser{source: s}
	config := &Config{
		clientID:             p.required(clientID),
		Location:             p.location(),
		LoadBalancer:         parsed(&p, loadBalancer, LoadBalancer{}, ParseLoadBalancer),
		NodeIPBlock:          parsed(&p, nodeIPBlock, "", parseID),
		NodeAddress:          parsed(&p, nodeAddress, NodeAddressBlock, parseNodeAddress),
		ManageMembership:     parsed(&p, manageMembership, false, parseToggle),
		MaxIPBlocks:          parsed(&p, maxIPBlocks, 0, parseCount),
		OwnBlocks:            parsed(&p, ownIPBlocks, nil, parseIDs),
		DryRun:               parsed(&p, dryRun, false, parseToggle),
		CollectOrphans:       parsed(&p, collectOrphans, false, parseToggle),
		OrphanGrace:          parsed(&p, orphanGrace, defaultOrphanGrace, parseGrace),
		AnnotationIPLocation: parsed(&p, annotationIPLocation, contract.ServiceIPLocation, parseAnnotation),
		ControlPlaneEndpoint: parsed(&p, controlPlaneEndpoint, false, parseToggle),
		APIServerPort:        parsed(&p, apiServerPort, 0, parsePort),
		Allocation:           parsed(&p, ipAllocation, contract.AllocationDedicated, parseAllocation),
		BlockSize:            parsed(&p, ipBlockSize, defaultBlockSize, parseSize),
		RequestsPerSecond:    parsed(&p, requestRate, defaultRequestRate, parseRate),
		ServiceNodeSelector:  parsed(&p, serviceNodeSelector, labels.Everything(), parseSelector),
	}
	p.required(clientSecret)
	config.BaseURL = parsed(&p, baseURL, pnap.DefaultBaseURL, parseURL)
	config.TokenURL = parsed(&p, tokenURL, defaultTokenURL(config.BaseURL), parseURL)
	return config, p.problems
}

// defaultTokenURL returns the official realm for the official API; any other base URL is assumed to serve the token
// endpoint too.
func defaultTokenURL(base string) string {
	u, err := url.Parse(base)
	if err != nil || base == pnap.DefaultBaseURL {
		return pnap.DefaultTokenURL
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: pnap.TokenPath}).String()
}

// readFile is os.ReadFile with an error that includes what to do.
func readFile(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read cloud config: %w; "+
			"set --cloud-config to the path of the secret with clientID and clientSecret", err)
	}
	return raw, nil
}
