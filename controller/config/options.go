package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
)

// Option is one option of the controller, with the sources of its value.
type Option struct {
	// Flag without its dashes, environment variable and field of the secret; each is empty where there is none.
	Flag, Env, Field string
	// Usage describes the option, Default what applies when it is not set. Both are texts for the documentation.
	Usage, Default string
	toggle         bool // toggle marks a boolean: the flag without a value means true
}

// name is the option's name in error messages, with every way to set it.
func (o Option) name() string {
	ways := make([]string, 0, 3)
	if o.Flag != "" {
		ways = append(ways, "--"+o.Flag)
	}
	if o.Env != "" {
		ways = append(ways, o.Env)
	}
	if o.Field != "" {
		ways = append(ways, "secret field "+o.Field)
	}
	return strings.Join(ways, ", ")
}

var (
	clientID = Option{Field: "clientID", Env: "PNAP_CLIENT_ID", Default: "required",
		Usage: "OAuth2 client ID for the phoenixNAP API. Read again when the file changes."}
	clientSecret = Option{Field: "clientSecret", Env: "PNAP_CLIENT_SECRET", Default: "required",
		Usage: "OAuth2 client secret for the phoenixNAP API. Read again when the file changes."}
	location = Option{Field: "location", Env: "PNAP_LOCATION", Flag: "location",
		Default: "the Service's annotation, without which the Service is rejected",
		Usage:   "Location of new IP blocks, a 3-letter code such as ASH. Overrides the annotation of a Service."}
	baseURL = Option{Field: "base-url", Env: "PNAP_BASE_URL", Flag: "base-url", Default: "the official API",
		Usage: "Root of the phoenixNAP API."}
	tokenURL = Option{Field: "token-url", Env: "PNAP_TOKEN_URL", Flag: "token-url",
		Default: "the official realm; with a different base URL, /auth/realms/BMC/protocol/openid-connect/token on " +
			"that host",
		Usage: "OAuth2 token endpoint."}
	loadBalancer = Option{Field: "loadbalancer", Env: "PNAP_LOAD_BALANCER", Flag: "load-balancer",
		Default: "none: Services are ignored",
		Usage: "Announcer of the addresses of LoadBalancer Services, and the public network: " + announcers() +
			"; three slashes are accepted too."}
	nodeAddress = Option{Field: "nodeAddress", Env: "PNAP_NODE_ADDRESS", Flag: "node-address",
		Default: NodeAddressBlock,
		Usage: "Addresses of nodes in the public network: block, from an IP block that is brought or bought for " +
			"them, or none, for interfaces with a link-local address."}
	manageMembership = Option{Field: "manageMembership", Env: "PNAP_MANAGE_MEMBERSHIP", Flag: "manage-membership",
		toggle: true, Default: "off: missing memberships are reported",
		Usage: "Join the servers of Nodes that match the service node selector to the public network, and remove " +
			"those servers again."}
	maxIPBlocks = Option{Field: "maxIPBlocks", Env: "PNAP_MAX_IP_BLOCKS", Flag: "max-ip-blocks",
		Default: "0, as many as the public network can have (10 IPv4 blocks)",
		Usage:   "Maximum number of IP blocks to buy."}
	maxRetained = Option{Field: "maxRetainedIPBlocks", Env: "PNAP_MAX_RETAINED_IP_BLOCKS",
		Flag: "max-retained-ip-blocks", Default: strconv.Itoa(defaultMaxRetained),
		Usage: "Maximum number of IP blocks that may outlive their Services (annotation " + contract.ServiceIPRetain +
			"); 0 for none. They count for the maximum to buy, too."}
	maxRetainedPerNamespace = Option{Field: "maxRetainedIPBlocksPerNamespace",
		Env: "PNAP_MAX_RETAINED_IP_BLOCKS_PER_NAMESPACE", Flag: "max-retained-ip-blocks-per-namespace",
		Default: strconv.Itoa(defaultMaxRetainedPerNamespace),
		Usage:   "Maximum number of IP blocks that may outlive the Services of one namespace; 0 for none."}
	dryRun = Option{Flag: "dry-run", toggle: true, Default: "off",
		Usage: "Report what would be bought, changed or deleted, without changing anything at phoenixNAP or in the " +
			"cluster."}
	metricsPrivate = Option{Flag: listen.Flag, toggle: true, Default: "off",
		Usage: "Serve metrics and health on the same port of the private addresses of this machine, too (RFC 1918, " +
			"4193, 6598)."}
	collectOrphans = Option{Field: "collectOrphans", Env: "PNAP_COLLECT_ORPHANS", Flag: "collect-orphans", toggle: true,
		Default: "off: orphans are reported",
		Usage:   "Delete IP blocks that this cluster bought and whose Service no longer exists."}
	orphanGrace = Option{Field: "orphanGrace", Env: "PNAP_ORPHAN_GRACE", Flag: "orphan-grace", Default: "1h",
		Usage: "How long an IP block must have been an orphan before it is deleted, at least 10s."}
	annotationIPLocation = Option{Field: "annotationIPLocation", Env: "PNAP_ANNOTATION_IP_LOCATION",
		Flag: "annotation-ip-location", Default: contract.ServiceIPLocation,
		Usage: "Name of the Service annotation that sets a location."}
	controlPlaneEndpoint = Option{Field: "controlPlaneEndpoint", Env: "PNAP_CONTROL_PLANE_ENDPOINT",
		Flag: "control-plane-endpoint", toggle: true, Default: "off",
		Usage: "Maintain a Service of type LoadBalancer in front of the API servers: " +
			"kube-system/phoenixnap-control-plane."}
	apiServerPort = Option{Field: "apiServerPort", Env: "PNAP_API_SERVER_PORT", Flag: "api-server-port",
		Default: "0, the port of the API servers",
		Usage:   "Port of the control-plane endpoint."}
	providerIDFormat = Option{Field: "providerIDFormat", Env: "PNAP_PROVIDER_ID_FORMAT", Flag: "provider-id-format",
		Default: contract.ProviderIDPhoenixNAP,
		Usage: "Format of the provider IDs of new Nodes: phoenixnap, phoenixnap://<server-id>, or bmc, " +
			"bmc://servers/<server-id>, by which phoenixNAP's provider for Cluster API finds the Nodes of its Machines."}
	serviceNodeSelector = Option{Field: "serviceNodeSelector", Env: "PNAP_SERVICE_NODE_SELECTOR",
		Flag: "service-node-selector", Default: "all",
		Usage: "Label selector of the nodes that may carry load-balancer traffic."}
	ipAllocation = Option{Field: "ipAllocation", Env: "PNAP_IP_ALLOCATION", Flag: "ip-allocation",
		Default: contract.AllocationDedicated,
		Usage: "How Services get addresses: dedicated, one IP block for each Service, or shared, several Services in " +
			"one block. The annotation of a Service overrides it."}
	ipBlockSize = Option{Field: "ipBlockSize", Env: "PNAP_IP_BLOCK_SIZE", Flag: "ip-block-size",
		Default: defaultBlockSize,
		Usage:   "Size of new IP blocks: /28, /29 or /30. The annotation of a Service overrides it."}
	requestRate = Option{Field: "apiRequestsPerSecond", Env: "PNAP_API_REQUESTS_PER_SECOND",
		Flag: "api-requests-per-second", Default: strconv.Itoa(defaultRequestRate),
		Usage: "Average limit of requests to the phoenixNAP API per second, 1 to 100; bursts may be twice as large."}
)

// Options returns every option, in the order of the documentation.
func Options() []Option {
	return []Option{
		clientID, clientSecret, location, baseURL, tokenURL, loadBalancer, ipAllocation, ipBlockSize,
		maxIPBlocks, maxRetained, maxRetainedPerNamespace, annotationIPLocation, serviceNodeSelector, manageMembership,
		providerIDFormat, nodeAddress, collectOrphans, orphanGrace, controlPlaneEndpoint, apiServerPort,
		requestRate, metricsPrivate, dryRun,
	}
}

// AddFlags registers the options that have a flag with set. Secrets have none: everyone can read a command line.
func AddFlags(set *pflag.FlagSet) {
	for _, o := range Options() {
		help := o.Usage + " Default: " + o.Default + "."
		switch {
		case o.toggle:
			set.Bool(o.Flag, false, help)
		case o.Flag != "":
			set.String(o.Flag, "", help)
		}
	}
}

// parser finds the values of options by precedence, and collects problems while it reads them.
type parser struct {
	flags    *pflag.FlagSet
	getenv   func(string) string
	secret   map[string]string
	problems []error
}

// get returns the value and its source; both are empty when the option is not set.
func (p *parser) get(o Option) (value, where string) {
	if p.flags != nil && o.Flag != "" && p.flags.Changed(o.Flag) {
		return trimPasted(p.flags.Lookup(o.Flag).Value.String()), "--" + o.Flag
	}
	if o.Env != "" {
		if value := trimPasted(p.getenv(o.Env)); value != "" {
			return value, o.Env
		}
	}
	if value := trimPasted(p.secret[o.Field]); o.Field != "" && value != "" {
		return value, "secret field " + o.Field
	}
	return "", ""
}

// at returns where the option is set.
func (p *parser) at(o Option) string {
	_, where := p.get(o)
	return where
}

// refuse records a problem when there is one.
func (p *parser) refuse(when bool, format string, args ...any) {
	if when {
		p.problems = append(p.problems, fmt.Errorf(format, args...))
	}
}

func (p *parser) required(o Option) string {
	value, where := p.get(o)
	p.refuse(where == "", "%s is missing: set %s", o.Field, o.name())
	if isPlaceholder(value) {
		p.refuse(true, "%s is still the placeholder of the template: replace it", where)
		return value
	}
	p.refuseFlaw(where, value, inCredential)
	return value
}

// refuseFlaw records a flaw of a value, and reports whether there is one.
func (p *parser) refuseFlaw(where, value string, possible func(rune) bool) bool {
	err := flaw(value, possible)
	p.refuse(err != nil, "%s %w", where, err)
	return err != nil
}

// isPlaceholder reports whether a value is an unchanged placeholder of deploy/template/secret.yaml.
func isPlaceholder(value string) bool {
	return strings.HasPrefix(value, "<") && strings.HasSuffix(value, ">")
}

// parsed reads an option with parse, or returns fallback when it is not set or invalid.
func parsed[T any](p *parser, o Option, fallback T, parse func(string) (T, error)) T {
	raw, where := p.get(o)
	if raw == "" || p.refuseFlaw(where, raw, inOption) {
		return fallback
	}
	value, err := parse(raw)
	if err != nil {
		p.problems = append(p.problems, fmt.Errorf("%s: %w", where, err))
		return fallback
	}
	return value
}

// idPattern is the form of every ID of the API: 24 hexadecimal digits.
var idPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

var (
	parseLocation = matching(regexp.MustCompile(`^[A-Z]{3}$`),
		"location %q is not a code of three capital letters such as ASH")
	parseSize = matching(regexp.MustCompile(`^/(28|29|30)$`),
		`%q is not a block size: want "/28", "/29" or "/30"`)
	parseAllocation = matching(regexp.MustCompile("^("+contract.AllocationDedicated+"|"+contract.AllocationShared+")$"),
		`%q is not an IP allocation: want "dedicated" or "shared"`)
	parseNodeAddress = matching(regexp.MustCompile("^("+NodeAddressBlock+"|"+NodeAddressNone+")$"),
		`%q is not a node address: want "block" or "none"`)
	parseProviderIDFormat = matching(
		regexp.MustCompile("^("+contract.ProviderIDPhoenixNAP+"|"+contract.ProviderIDBMC+")$"),
		`%q is not a provider ID format: want "phoenixnap" or "bmc"`)

	parseCount = number(0, math.MaxInt, "%q is not a number of at least 0")
	parsePort  = number(0, 65535, "%q is not a port from 0 to 65535")
	// The highest rate prevents a typing error from disabling the rate limit.
	parseRate = number(1, 100, "%q is not a number from 1 to 100")
)

// shortestGrace is the longest observed delay of the API's lists: a younger orphan may not be one.
const shortestGrace = 10 * time.Second

// matching returns a parser of texts that match a pattern. problem is the format of its error.
func matching(pattern *regexp.Regexp, problem string) func(string) (string, error) {
	return func(raw string) (string, error) {
		if !pattern.MatchString(raw) {
			return "", fmt.Errorf(problem, raw)
		}
		return raw, nil
	}
}

// number returns a parser of numbers. problem is the format of its error.
func number(lowest, highest int, problem string) func(string) (int, error) {
	return func(raw string) (int, error) {
		n, err := strconv.Atoi(raw)
		if err != nil || n < lowest || n > highest {
			return 0, fmt.Errorf(problem, raw)
		}
		return n, nil
	}
}

// announcers are the URLs of a load balancer: the kind of announcer is the scheme.
func announcers() string {
	return strings.Join(announcer.Kinds(), "://<network-id> or ") + "://<network-id>"
}

// parseLoadBalancer parses the URL of a load balancer, also with a third slash, as in old pages.
func parseLoadBalancer(raw string) (LoadBalancer, error) {
	want := "want " + announcers()
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return LoadBalancer{}, fmt.Errorf("load balancer %q is not a URL: %s", raw, want)
	}
	if !slices.Contains(announcer.Kinds(), scheme) {
		return LoadBalancer{}, fmt.Errorf("load balancer %q has the unknown scheme %q: %s", raw, scheme, want)
	}
	id := strings.TrimPrefix(rest, "/")
	if !idPattern.MatchString(id) {
		return LoadBalancer{},
			fmt.Errorf("load balancer %q: %q is not the ID of a public network (24 hexadecimal digits): %s",
				raw, id, want)
	}
	return LoadBalancer{Announcer: scheme, Network: network.Named{Name: v1beta1.DefaultNetwork, ID: id}}, nil
}

// parseURL accepts http and https. Its error does not contain a value with a password.
func parseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, strings.Contains(raw, " "):
		return "", errors.New("the value is not a URL: want https://host")
	case u.User != nil:
		return "", errors.New("a URL with a user name is not allowed: set clientID and clientSecret instead")
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return "", fmt.Errorf("%q is not an http or https URL: want https://host", raw)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q has a query or fragment: want https://host", raw)
	}
	return strings.TrimSuffix(raw, "/"), nil
}

func parseAnnotation(raw string) (string, error) {
	if complaints := validation.IsQualifiedName(raw); len(complaints) > 0 {
		return "", fmt.Errorf("%q is not an annotation name: %s", raw, strings.Join(complaints, "; "))
	}
	return raw, nil
}

func parseSelector(raw string) (labels.Selector, error) {
	selector, err := labels.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector: %w", raw, err)
	}
	return selector, nil
}

func parseToggle(raw string) (bool, error) {
	on, err := strconv.ParseBool(raw)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", raw)
	}
	return on, nil
}

func parseGrace(raw string) (time.Duration, error) {
	grace, err := time.ParseDuration(raw)
	if err != nil || grace < shortestGrace {
		return 0, fmt.Errorf("%q is not a duration of at least %s, such as 1h", raw, shortestGrace)
	}
	return grace, nil
}
