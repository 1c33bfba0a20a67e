// Package config reads the controller's options: a flag overrides the environment, which overrides the secret, which
// overrides the default. It reports all errors at once.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
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
	// An IP block that outlives its Service is paid for without end, and takes no more than the right to make Services.
	defaultMaxRetained             = 2
	defaultMaxRetainedPerNamespace = 1

	setCloudConfig = "set --cloud-config to the path of the secret with clientID and clientSecret"
)

// Config is the controller's configuration. It is valid: Load rejects anything else.
type Config struct {
	// Credentials returns the client ID and secret. It reads the secret file again when the file has changed.
	Credentials func() (id, secret string, err error)
	Location    string // of new IP blocks, such as ASH; empty means that each Service sets its own
	BaseURL     string // the root of the phoenixNAP API
	TokenURL    string // the OAuth2 token endpoint

	LoadBalancer         LoadBalancer  // the announcer and the public network; zero means no load balancers
	NodeAddress          string        // NodeAddressBlock or NodeAddressNone
	ManageMembership     bool          // join servers to the public network, and remove those servers again
	Allocation           string        // of Services without an annotation: contract.AllocationDedicated or -Shared
	BlockSize            string        // the prefix length of new blocks with its slash: "/28", "/29" or "/30"
	MaxIPBlocks          int           // the maximum number of blocks to buy; 0 means as many as the network can have
	MaxRetained          int           // the maximum number of blocks that outlive their Services; 0 for none
	AnnotationIPLocation string        // the name of the Service annotation that sets a location
	DryRun               bool          // report changes instead of making them
	MetricsPrivate       bool          // serve metrics on the private addresses of the machine, too
	CollectOrphans       bool          // delete blocks of this cluster whose Service no longer exists
	OrphanGrace          time.Duration // how long a block must have been an orphan before it is deleted
	ControlPlaneEndpoint bool          // maintain the Service in front of the API servers
	APIServerPort        int           // the port of that Service, 0 to 65535; 0 means the port of the API servers
	RequestsPerSecond    int           // the average rate limit of requests to the phoenixNAP API
	// MaxRetainedPerNamespace is the part of MaxRetained that the Services of one namespace may have.
	MaxRetainedPerNamespace int
	// ServiceNodeSelector selects the Nodes that may carry load-balancer traffic.
	ServiceNodeSelector labels.Selector
	// ProviderIDFormat is contract.ProviderIDPhoenixNAP or -BMC, the format of the provider IDs of new Nodes.
	ProviderIDFormat string
	// Warnings are sentences about settings that have no effect.
	Warnings []string

	clientID string
}

// LoadBalancer is the parsed load-balancer URL.
type LoadBalancer struct {
	Announcer string        // one of announcer.Kinds; empty when load balancers are off
	Network   network.Named // the public network, which is the default one
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
		fmt.Sprintf("publicNetwork=%q nodeAddress=%s manageMembership=%t ",
			c.LoadBalancer.Network.ID, c.NodeAddress, c.ManageMembership) +
		fmt.Sprintf("ipAllocation=%s ipBlockSize=%s maxIPBlocks=%d dryRun=%t collectOrphans=%t "+
			"orphanGrace=%s ",
			c.Allocation, c.BlockSize, c.MaxIPBlocks, c.DryRun, c.CollectOrphans, c.OrphanGrace) +
		fmt.Sprintf("annotationIPLocation=%s controlPlaneEndpoint=%t apiServerPort=%d serviceNodeSelector=%q "+
			"apiRequestsPerSecond=%d maxRetainedIPBlocks=%d maxRetainedIPBlocksPerNamespace=%d "+
			"metricsOnPrivateAddresses=%t providerIDFormat=%s",
			c.AnnotationIPLocation, c.ControlPlaneEndpoint, c.APIServerPort, c.ServiceNodeSelector, c.RequestsPerSecond,
			c.MaxRetained, c.MaxRetainedPerNamespace, c.MetricsPrivate, c.ProviderIDFormat)
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
func Load(secretPath string, flags *pflag.FlagSet, getenv func(string) string) (*Config, error) {
	if secretPath == "" {
		return nil, errors.New("no cloud config given: " + setCloudConfig)
	}
	secret, err := readSecret(secretPath)
	if secret == nil {
		return nil, err
	}
	p := &parser{flags: flags, getenv: getenv, secret: secret}
	config := p.parse()
	p.refuseContradictions(config)
	p.problems = append(p.problems, checkTrust(getenv)...)
	if err == nil && len(secret) == 0 && len(p.problems) > 0 {
		err = fmt.Errorf("cloud config %s has no fields: write at least clientID and clientSecret into it", secretPath)
	}
	if err := errors.Join(slices.Insert(p.problems, 0, err)...); err != nil {
		return nil, err
	}
	config.Credentials = (&credentials{path: secretPath, getenv: getenv}).get
	return config, nil
}

// parse reads every option; refuseContradictions checks the combinations.
func (p *parser) parse() *Config {
	config := &Config{
		clientID:             p.required(clientID),
		Location:             parsed(p, location, "", parseLocation),
		LoadBalancer:         parsed(p, loadBalancer, LoadBalancer{}, parseLoadBalancer),
		NodeAddress:          parsed(p, nodeAddress, NodeAddressBlock, parseNodeAddress),
		ManageMembership:     parsed(p, manageMembership, false, parseToggle),
		MaxIPBlocks:          parsed(p, maxIPBlocks, 0, parseCount),
		MaxRetained:          parsed(p, maxRetained, defaultMaxRetained, parseCount),
		DryRun:               parsed(p, dryRun, false, parseToggle),
		MetricsPrivate:       parsed(p, metricsPrivate, false, parseToggle),
		CollectOrphans:       parsed(p, collectOrphans, false, parseToggle),
		OrphanGrace:          parsed(p, orphanGrace, defaultOrphanGrace, parseGrace),
		AnnotationIPLocation: parsed(p, annotationIPLocation, contract.ServiceIPLocation, parseAnnotation),
		ControlPlaneEndpoint: parsed(p, controlPlaneEndpoint, false, parseToggle),
		APIServerPort:        parsed(p, apiServerPort, 0, parsePort),
		Allocation:           parsed(p, ipAllocation, contract.AllocationDedicated, parseAllocation),
		BlockSize:            parsed(p, ipBlockSize, defaultBlockSize, parseSize),
		RequestsPerSecond:    parsed(p, requestRate, defaultRequestRate, parseRate),
		ServiceNodeSelector:  parsed(p, serviceNodeSelector, labels.Everything(), parseSelector),

		ProviderIDFormat:        parsed(p, providerIDFormat, contract.ProviderIDPhoenixNAP, parseProviderIDFormat),
		MaxRetainedPerNamespace: parsed(p, maxRetainedPerNamespace, defaultMaxRetainedPerNamespace, parseCount),
	}
	p.required(clientSecret)
	config.BaseURL = parsed(p, baseURL, pnap.DefaultBaseURL, parseURL)
	config.TokenURL = parsed(p, tokenURL, defaultTokenURL(config.BaseURL), parseURL)
	return config
}

// defaultTokenURL returns the official realm for the official API; other base URLs are assumed to serve tokens, too.
func defaultTokenURL(base string) string {
	u, err := url.Parse(base)
	if err != nil || base == pnap.DefaultBaseURL {
		return pnap.DefaultTokenURL
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: pnap.TokenPath}).String()
}

// refuseContradictions reports invalid combinations of options that are each valid by themselves, and options without
// effect, which a user would otherwise assume to be in effect.
func (p *parser) refuseContradictions(c *Config) {
	announcer, _ := p.get(loadBalancer)
	for _, o := range []struct {
		option Option
		used   bool
	}{
		{controlPlaneEndpoint, c.ControlPlaneEndpoint},
		{manageMembership, c.ManageMembership},
	} {
		p.refuse(o.used && announcer == "",
			"%s needs a public network: also set %s, or remove it", p.at(o.option), loadBalancer.name())
	}
	p.judgePort(c)
	p.refuse(c.Allocation == contract.AllocationShared && c.BlockSize == "/30",
		"%s: a block of size /30 has one address for Services, which cannot be shared: set /28 or /29",
		p.at(ipBlockSize))
}

// judgePort rejects a port without the endpoint that it is for. In the environment and in the secret it is only a
// warning: v1 of this provider had both, with another meaning, and who migrates still has them.
func (p *parser) judgePort(c *Config) {
	if c.APIServerPort == 0 || c.ControlPlaneEndpoint {
		return
	}
	where := p.at(apiServerPort)
	sentence := fmt.Sprintf("%s only affects the control-plane endpoint: also set %s, or remove it", where,
		controlPlaneEndpoint.name())
	if strings.HasPrefix(where, "--") {
		p.problems = append(p.problems, errors.New(sentence))
		return
	}
	c.Warnings = append(c.Warnings, sentence)
}
