package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// option is one row of the configuration: where its value may come from.
type option struct {
	// field is its name in the secret; empty when it may not stand there.
	field string
	// env is the environment variable; empty when there is none.
	env string
	// flag is the command-line flag without its dashes; empty when there is none.
	flag string
	// usage is the help text of the flag.
	usage string
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
	clientID     = option{field: "clientID", env: "PNAP_CLIENT_ID"}
	clientSecret = option{field: "clientSecret", env: "PNAP_CLIENT_SECRET"}
	location     = option{field: "location", env: "PNAP_LOCATION", flag: "location",
		usage: "Location of new IP blocks, a 3-letter code such as ASH. It overrides the annotation of a Service. Empty: each Service names its own."}
	baseURL = option{field: "base-url", env: "PNAP_BASE_URL", flag: "base-url",
		usage: "Root of the phoenixNAP API. Empty: the official one."}
	tokenURL = option{field: "token-url", env: "PNAP_TOKEN_URL", flag: "token-url",
		usage: "OAuth2 token endpoint. Empty: the official realm, or with a base URL of your own the same path on that host."}
	loadBalancer = option{field: "loadbalancer", env: "PNAP_LOAD_BALANCER", flag: "load-balancer",
		usage: "Who announces the addresses of LoadBalancer Services, and on which public network: kube-vip://<network-id> or agent://<network-id>. Empty: no load balancers."}
	nodeIPBlock = option{field: "nodeIPBlock", env: "PNAP_NODE_IP_BLOCK", flag: "node-ip-block",
		usage: "ID of the IP block from which nodes get their own addresses in the public network. Empty: with --manage-membership one is bought."}
	nodeAddress = option{field: "nodeAddress", env: "PNAP_NODE_ADDRESS", flag: "node-address",
		usage: "Own addresses of nodes in the public network: block, from the node IP block, or none, for interfaces with a link-local address."}
	manageMembership = option{field: "manageMembership", env: "PNAP_MANAGE_MEMBERSHIP", flag: "manage-membership", toggle: true,
		usage: "Join the servers of Nodes that match the service node selector to the public network. Off: only what is missing is reported."}
	maxIPBlocks = option{field: "maxIPBlocks", env: "PNAP_MAX_IP_BLOCKS", flag: "max-ip-blocks",
		usage: "Most IP blocks that may be bought. 0: as many as the public network holds."}
	ownIPBlocks = option{field: "ownIPBlocks", env: "PNAP_OWN_IP_BLOCKS", flag: "own-ip-blocks",
		usage: "IDs of IP blocks that Services may name in the annotation phoenixnap.com/ip-block-id although this cluster did not buy them, separated by commas."}
	dryRun = option{flag: "dry-run", toggle: true,
		usage: "Say what would be bought, changed or deleted, and change nothing, neither at phoenixNAP nor in the cluster."}
	collectOrphans = option{field: "collectOrphans", env: "PNAP_COLLECT_ORPHANS", flag: "collect-orphans", toggle: true,
		usage: "Delete IP blocks that this cluster bought and whose Service does not exist any more. Off: they are only reported."}
	orphanGrace = option{field: "orphanGrace", env: "PNAP_ORPHAN_GRACE", flag: "orphan-grace",
		usage: "How long an IP block must have been an orphan before it is deleted, such as 1h."}
	annotationIPLocation = option{field: "annotationIPLocation", env: "PNAP_ANNOTATION_IP_LOCATION", flag: "annotation-ip-location",
		usage: "Name of the Service annotation that names a location. Empty: phoenixnap.com/ip-location."}
	controlPlaneEndpoint = option{field: "controlPlaneEndpoint", env: "PNAP_CONTROL_PLANE_ENDPOINT", flag: "control-plane-endpoint", toggle: true,
		usage: "Keep a Service of type LoadBalancer before the API servers: kube-system/phoenixnap-control-plane."}
	apiServerPort = option{field: "apiServerPort", env: "PNAP_API_SERVER_PORT", flag: "api-server-port",
		usage: "Port of the control-plane endpoint. 0: the port of the API servers."}
	serviceNodeSelector = option{field: "serviceNodeSelector", env: "PNAP_SERVICE_NODE_SELECTOR", flag: "service-node-selector",
		usage: "Label selector of the nodes that may carry load-balancer traffic. Empty: all."}
	ipAllocation = option{field: "ipAllocation", env: "PNAP_IP_ALLOCATION", flag: "ip-allocation",
		usage: "How Services get addresses: dedicated, one IP block for each, or shared, several from one block. The annotation of a Service overrides it."}
	ipBlockSize = option{field: "ipBlockSize", env: "PNAP_IP_BLOCK_SIZE", flag: "ip-block-size",
		usage: "Size of new IP blocks: /28, /29 or /30. The annotation of a Service overrides it."}
	requestRate = option{field: "apiRequestsPerSecond", env: "PNAP_API_REQUESTS_PER_SECOND", flag: "api-requests-per-second",
		usage: "Most requests to the phoenixNAP API in a second, on average; twice as many may be sent at once."}
)

// all returns every option, in the order of the documentation.
func all() []option {
	return []option{clientID, clientSecret, location, baseURL, tokenURL, loadBalancer, nodeIPBlock, nodeAddress, manageMembership,
		maxIPBlocks, ownIPBlocks, dryRun, collectOrphans, orphanGrace, annotationIPLocation, controlPlaneEndpoint, apiServerPort,
		serviceNodeSelector, ipAllocation, ipBlockSize, requestRate}
}

// Flags holds the options that were given on the command line.
type Flags struct{ set *pflag.FlagSet }

// AddFlags registers the options that have a flag with set. Secrets have none: a command line is
// visible to everyone on the machine.
func AddFlags(set *pflag.FlagSet) *Flags {
	for _, o := range all() {
		switch {
		case o.toggle:
			set.Bool(o.flag, false, o.usage)
		case o.flag != "":
			set.String(o.flag, "", o.usage)
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
	if where == "" {
		p.problems = append(p.problems, fmt.Errorf("%s is missing: set %s", o.field, o.name()))
	}
	return value
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
