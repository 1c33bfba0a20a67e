package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// option is one option of the configuration, with the sources of its value.
type option struct {
	// field is its name in the secret; empty when the secret may not contain it.
	field string
	// env is the environment variable; empty when there is none.
	env string
	// flag is the command-line flag without its dashes; empty when there is none.
	flag string
	// usage describes the option, and fallback its default; both are texts for the documentation.
	usage, fallback string
	// toggle marks a boolean: the flag without a value means true.
	toggle bool
}

// name is the option's name in error messages, with every way to set it.
func (o option) name() string {
	ways := make([]string, 0, 3)
	if o.flag != "" {
		ways = append(ways, "--"+o.flag)
	}
	if o.env != "" {
		ways = append(ways, o.env)
	}
	if o.field != "" {
		ways = append(ways, "secret field "+o.field)
	}
	return strings.Join(ways, ", ")
}

var (
	clientID = option{
		field: "clientID", env: "PNAP_CLIENT_ID",
		fallback: "required",
		usage:    "OAuth2 client ID for the phoenixNAP API. Read again when the file changes.",
	}
	clientSecret = option{
		field: "clientSecret", env: "PNAP_CLIENT_SECRET",
		fallback: "required",
		usage:    "OAuth2 client secret for the phoenixNAP API. Read again when the file changes.",
	}
	location = option{
		field: "location", env: "PNAP_LOCATION", flag: "location",
		fallback: "the Service's annotation, without which the Service is rejected",
		usage:    "Location of new IP blocks, a 3-letter code such as ASH. Overrides the annotation of a Service.",
	}
	baseURL = option{
		field: "base-url", env: "PNAP_BASE_URL", flag: "base-url",
		fallback: "the official API",
		usage:    "Root of the phoenixNAP API.",
	}
	tokenURL = option{
		field: "token-url", env: "PNAP_TOKEN_URL", flag: "token-url",
		fallback: "the official realm; with a different base URL, /auth/realms/BMC/protocol/openid-connect/token on " +
			"that host",
		usage: "OAuth2 token endpoint.",
	}
	loadBalancer = option{
		field: "loadbalancer", env: "PNAP_LOAD_BALANCER", flag: "load-balancer",
		fallback: "none: Services are ignored",
		usage: "Announcer of the addresses of LoadBalancer Services, and the public network: " +
			"kube-vip://<network-id> or agent://<network-id>; three slashes are accepted too.",
	}
	nodeIPBlock = option{
		field: "nodeIPBlock", env: "PNAP_NODE_IP_BLOCK", flag: "node-ip-block",
		fallback: "none; with --manage-membership, a block is bought",
		usage:    "ID of the IP block from which nodes get their own addresses in the public network.",
	}
	nodeAddress = option{
		field: "nodeAddress", env: "PNAP_NODE_ADDRESS", flag: "node-address",
		fallback: NodeAddressBlock,
		usage: "Addresses of nodes in the public network: block, from the node IP block, or none, for interfaces " +
			"with a link-local address.",
	}
	manageMembership = option{
		field: "manageMembership", env: "PNAP_MANAGE_MEMBERSHIP", flag: "manage-membership", toggle: true,
		fallback: "off: missing memberships are reported",
		usage: "Join the servers of Nodes that match the service node selector to the public network, and remove " +
			"those servers again.",
	}
	maxIPBlocks = option{
		field: "maxIPBlocks", env: "PNAP_MAX_IP_BLOCKS", flag: "max-ip-blocks",
		fallback: "0, as many as the public network can have (10 IPv4 blocks)",
		usage:    "Maximum number of IP blocks to buy.",
	}
	ownIPBlocks = option{
		field: "ownIPBlocks", env: "PNAP_OWN_IP_BLOCKS", flag: "own-ip-blocks",
		fallback: "none",
		usage: "IDs of IP blocks, separated by commas, that Services may request with the annotation " +
			"phoenixnap.com/ip-block-id although this cluster did not buy them.",
	}
	dryRun = option{
		flag: "dry-run", toggle: true,
		fallback: "off",
		usage: "Report what would be bought, changed or deleted, without changing anything at phoenixNAP or in " +
			"the cluster.",
	}
	collectOrphans = option{
		field: "collectOrphans", env: "PNAP_COLLECT_ORPHANS", flag: "collect-orphans", toggle: true,
		fallback: "off: orphans are reported",
		usage:    "Delete IP blocks that this cluster bought and whose Service no longer exists.",
	}
	orphanGrace = option{
		field: "orphanGrace", env: "PNAP_ORPHAN_GRACE", flag: "orphan-grace",
		fallback: "1h",
		usage:    "How long an IP block must have been an orphan before it is deleted, at least 10s.",
	}
	annotationIPLocation = option{
		field: "annotationIPLocation", env: "PNAP_ANNOTATION_IP_LOCATION", flag: "annotation-ip-location",
		fallback: contract.ServiceIPLocation,
		usage:    "Name of the Service annotation that sets a location.",
	}
	controlPlaneEndpoint = option{
		field: "controlPlaneEndpoint", env: "PNAP_CONTROL_PLANE_ENDPOINT", flag: "control-plane-endpoint", toggle: true,
		fallback: "off",
		usage: "Maintain a Service of type LoadBalancer in front of the API servers: " +
			"kube-system/phoenixnap-control-plane.",
	}
	apiServerPort = option{
		field: "apiServerPort", env: "PNAP_API_SERVER_PORT", flag: "api-server-port",
		fallback: "0, the port of the API servers",
		usage:    "Port of the control-plane endpoint.",
	}
	serviceNodeSelector = option{
		field: "serviceNodeSelector", env: "PNAP_SERVICE_NODE_SELECTOR", flag: "service-node-selector",
		fallback: "all",
		usage:    "Label selector of the nodes that may carry load-balancer traffic.",
	}
	ipAllocation = option{
		field: "ipAllocation", env: "PNAP_IP_ALLOCATION", flag: "ip-allocation",
		fallback: contract.AllocationDedicated,
		usage: "How Services get addresses: dedicated, one IP block for each Service, or shared, several " +
			"Services in one block. The annotation of a Service overrides it.",
	}
	ipBlockSize = option{
		field: "ipBlockSize", env: "PNAP_IP_BLOCK_SIZE", flag: "ip-block-size",
		fallback: defaultBlockSize,
		usage:    "Size of new IP blocks: /28, /29 or /30. The annotation of a Service overrides it.",
	}
	requestRate = option{
		field: "apiRequestsPerSecond", env: "PNAP_API_REQUESTS_PER_SECOND", flag: "api-requests-per-second",
		fallback: strconv.Itoa(defaultRequestRate),
		usage:    "Average limit of requests to the phoenixNAP API per second, 1 to 100; bursts may be twice as large.",
	}
)

// all returns every option, in the order of the documentation.
func all() []option {
	return []option{
		clientID, clientSecret, location, baseURL, tokenURL, loadBalancer, ipAllocation, ipBlockSize, ownIPBlocks,
		maxIPBlocks,
		annotationIPLocation, serviceNodeSelector, manageMembership, nodeAddress, nodeIPBlock, collectOrphans,
		orphanGrace,
		controlPlaneEndpoint, apiServerPort, requestRate, dryRun,
	}
}

// help returns the flag's help text.
func (o option) help() string { return o.usage + " Default: " + o.fallback + "." }

// Option is the documentation of one option of the controller.
type Option struct {
	// Flag without its dashes, environment variable and field of the secret; each is empty where there is none.
	Flag, Env, Field string
	// Usage describes the option, Default what applies when it is not set.
	Usage, Default string
}

// Options returns every option that this package reads.
func Options() []Option {
	declared := all()
	options := make([]Option, len(declared))
	for i, o := range declared {
		options[i] = Option{Flag: o.flag, Env: o.env, Field: o.field, Usage: o.usage, Default: o.fallback}
	}
	return options
}

// Flags holds the options that were set on the command line.
type Flags struct{ set *pflag.FlagSet }

// AddFlags registers the options that have a flag with set. Secrets have no flag: a command line is visible to everyone
// on the machine.
func AddFlags(set *pflag.FlagSet) *Flags {
	for _, o := range all() {
		switch {
		case o.toggle:
			set.Bool(o.flag, false, o.help())
		case o.flag != "":
			set.String(o.flag, "", o.help())
		}
	}
	return &Flags{set: set}
}

func (f *Flags) lookup(name string) (string, bool) {
	if f == nil || f.set == nil || name == "" || !f.set.Changed(name) {
		return "", false
	}
	return f.set.Lookup(name).Value.String(), true
}

// source finds the value of an option by precedence.
type source struct {
	flags  *Flags
	getenv func(string) string
	secret map[string]string
}

// get returns the value and its source; both are empty when the option is not set.
func (s source) get(o option) (value, where string) {
	if value, ok := s.flags.lookup(o.flag); ok {
		return value, "--" + o.flag
	}
	if o.env != "" {
		if value := s.getenv(o.env); value != "" {
			return value, o.env
		}
	}
	if value := s.secret[o.field]; o.field != "" && value != "" {
		return value, "secret field " + o.field
	}
	return "", ""
}

// parser collects problems while it reads options.
type parser struct {
	source
	problems []error
}

func (p *parser) required(o option) string {
	value, where := p.get(o)
	switch {
	case where == "":
		p.problems = append(p.problems, fmt.Errorf("%s is missing: set %s", o.field, o.name()))
	case isPlaceholder(value):
		p.problems = append(p.problems, fmt.Errorf("%s is still the placeholder of the template: replace it", where))
	}
	return value
}

// isPlaceholder reports whether a value is an unchanged placeholder of deploy/template/secret.yaml.
func isPlaceholder(value string) bool {
	return strings.HasPrefix(value, "<") && strings.HasSuffix(value, ">")
}

func (p *parser) location() string {
	return parsed(p, location, "", parseLocation)
}

// parsed reads an option with parse, or returns fallback when it is not set or invalid.
func parsed[T any](p *parser, o option, fallback T, parse func(string) (T, error)) T {
	raw, where := p.get(o)
	if raw == "" {
		return fallback
	}
	value, err := parse(raw)
	if err != nil {
		p.problems = append(p.problems, fmt.Errorf("%s: %w", where, err))
		return fallback
	}
	return value
}
