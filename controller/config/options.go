package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// option is one row of the configuration: where its value may come from.
type option struct {
	// field is its name in the secret; empty when it may not stand there.
	field string
	// env is the environment variable; empty when there is none.
	env string
	// flag is the command-line flag without its dashes; empty when there is none.
	flag string
	// usage says what the option is for, and fallback what holds when it is not set; both are for people.
	usage, fallback string
	// toggle tells that the value is true or false, so that the flag alone means true.
	toggle bool
}

// name is how error messages call the option, with every way to set it.
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
	clientID = option{field: "clientID", env: "PNAP_CLIENT_ID", fallback: "required",
		usage: "OAuth2 client of the phoenixNAP API. Read anew when the file changes."}
	clientSecret = option{field: "clientSecret", env: "PNAP_CLIENT_SECRET", fallback: "required",
		usage: "Its secret. Read anew when the file changes."}
	location = option{field: "location", env: "PNAP_LOCATION", flag: "location", fallback: "the Service's annotation, else the Service is refused",
		usage: "Location of new IP blocks, a 3-letter code such as ASH. It overrides the annotation of a Service."}
	baseURL = option{field: "base-url", env: "PNAP_BASE_URL", flag: "base-url", fallback: "the official API",
		usage: "Root of the phoenixNAP API."}
	tokenURL = option{field: "token-url", env: "PNAP_TOKEN_URL", flag: "token-url", fallback: "the official realm; with a base URL of your own, /auth/realms/BMC/protocol/openid-connect/token on that host",
		usage: "OAuth2 token endpoint."}
	loadBalancer = option{field: "loadbalancer", env: "PNAP_LOAD_BALANCER", flag: "load-balancer", fallback: "none: Services are left alone",
		usage: "Who announces the addresses of LoadBalancer Services, and on which public network: kube-vip://<network-id> or agent://<network-id>; three slashes are read too."}
	nodeIPBlock = option{field: "nodeIPBlock", env: "PNAP_NODE_IP_BLOCK", flag: "node-ip-block", fallback: "none; with --manage-membership one is bought",
		usage: "ID of the IP block from which nodes get their own addresses in the public network."}
	nodeAddress = option{field: "nodeAddress", env: "PNAP_NODE_ADDRESS", flag: "node-address", fallback: NodeAddressBlock,
		usage: "Own addresses of nodes in the public network: block, from the node IP block, or none, for interfaces with a link-local address."}
	manageMembership = option{field: "manageMembership", env: "PNAP_MANAGE_MEMBERSHIP", flag: "manage-membership", toggle: true, fallback: "off: what is missing is reported",
		usage: "Join the servers of Nodes that match the service node selector to the public network, and take those out again."}
	maxIPBlocks = option{field: "maxIPBlocks", env: "PNAP_MAX_IP_BLOCKS", flag: "max-ip-blocks", fallback: "0, as many as the public network holds (10 IPv4 blocks)",
		usage: "Most IP blocks that may be bought."}
	ownIPBlocks = option{field: "ownIPBlocks", env: "PNAP_OWN_IP_BLOCKS", flag: "own-ip-blocks", fallback: "none",
		usage: "IDs of IP blocks that Services may name in the annotation phoenixnap.com/ip-block-id although this cluster did not buy them, separated by commas."}
	dryRun = option{flag: "dry-run", toggle: true, fallback: "off",
		usage: "Say what would be bought, changed or deleted, and change nothing, neither at phoenixNAP nor in the cluster."}
	collectOrphans = option{field: "collectOrphans", env: "PNAP_COLLECT_ORPHANS", flag: "collect-orphans", toggle: true, fallback: "off: they are reported",
		usage: "Delete IP blocks that this cluster bought and whose Service does not exist any more."}
	orphanGrace = option{field: "orphanGrace", env: "PNAP_ORPHAN_GRACE", flag: "orphan-grace", fallback: "1h",
		usage: "How long an IP block must have been an orphan before it is deleted, from 10s up."}
	annotationIPLocation = option{field: "annotationIPLocation", env: "PNAP_ANNOTATION_IP_LOCATION", flag: "annotation-ip-location", fallback: contract.ServiceIPLocation,
		usage: "Name of the Service annotation that names a location."}
	controlPlaneEndpoint = option{field: "controlPlaneEndpoint", env: "PNAP_CONTROL_PLANE_ENDPOINT", flag: "control-plane-endpoint", toggle: true, fallback: "off",
		usage: "Keep a Service of type LoadBalancer before the API servers: kube-system/phoenixnap-control-plane."}
	apiServerPort = option{field: "apiServerPort", env: "PNAP_API_SERVER_PORT", flag: "api-server-port", fallback: "0, the port of the API servers",
		usage: "Port of the control-plane endpoint."}
	serviceNodeSelector = option{field: "serviceNodeSelector", env: "PNAP_SERVICE_NODE_SELECTOR", flag: "service-node-selector", fallback: "all",
		usage: "Label selector of the nodes that may carry load-balancer traffic."}
	ipAllocation = option{field: "ipAllocation", env: "PNAP_IP_ALLOCATION", flag: "ip-allocation", fallback: contract.AllocationDedicated,
		usage: "How Services get addresses: dedicated, one IP block for each, or shared, several from one block. The annotation of a Service overrides it."}
	ipBlockSize = option{field: "ipBlockSize", env: "PNAP_IP_BLOCK_SIZE", flag: "ip-block-size", fallback: defaultBlockSize,
		usage: "Size of new IP blocks: /28, /29 or /30. The annotation of a Service overrides it."}
	requestRate = option{field: "apiRequestsPerSecond", env: "PNAP_API_REQUESTS_PER_SECOND", flag: "api-requests-per-second", fallback: strconv.Itoa(defaultRequestRate),
		usage: "Most requests to the phoenixNAP API in a second, on average, 1 to 100; twice as many may be sent at once."}
)

// all returns every option, in the order of the documentation.
func all() []option {
	return []option{clientID, clientSecret, location, baseURL, tokenURL, loadBalancer, ipAllocation, ipBlockSize, ownIPBlocks, maxIPBlocks,
		annotationIPLocation, serviceNodeSelector, manageMembership, nodeAddress, nodeIPBlock, collectOrphans, orphanGrace,
		controlPlaneEndpoint, apiServerPort, requestRate, dryRun}
}

// help is the text of the flag.
func (o option) help() string { return o.usage + " Default: " + o.fallback + "." }

// Option is one option of the controller as people are told of it.
type Option struct {
	// Flag without its dashes, environment variable and field of the secret; each is empty where there is none.
	Flag, Env, Field string
	// Usage says what the option is for, Default what holds when it is not set.
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

// Flags holds the options that were given on the command line.
type Flags struct{ set *pflag.FlagSet }

// AddFlags registers the options that have a flag with set. Secrets have none: a command line is
// visible to everyone on the machine.
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

// get returns the value and where it stands; both are empty when the option is not set.
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

// parser collects what is wrong while options are read.
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
		p.problems = append(p.problems, fmt.Errorf("%s is still the placeholder of the template: put your own value there", where))
	}
	return value
}

// isPlaceholder tells whether a value is one of deploy/template/secret.yaml, which nobody has filled in.
func isPlaceholder(value string) bool {
	return strings.HasPrefix(value, "<") && strings.HasSuffix(value, ">")
}

func (p *parser) location() string {
	return parsed(p, location, "", parseLocation)
}

// parsed reads an option with parse, or returns fallback when it is not set or wrong.
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
