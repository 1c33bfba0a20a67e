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

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// idPattern is the form of every ID of the API: 24 hexadecimal digits.
var idPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

var (
	parseID       = matching(idPattern, "%q is not the ID of an IP block (24 hexadecimal digits)")
	parseLocation = matching(regexp.MustCompile(`^[A-Z]{3}$`),
		"location %q is not a code of three capital letters such as ASH")
	parseSize = matching(regexp.MustCompile(`^/(28|29|30)$`),
		`%q is not a block size: want "/28", "/29" or "/30"`)
	parseAllocation = matching(regexp.MustCompile("^("+contract.AllocationDedicated+"|"+contract.AllocationShared+")$"),
		`%q is not an IP allocation: want "dedicated" or "shared"`)
	parseNodeAddress = matching(regexp.MustCompile("^("+NodeAddressBlock+"|"+NodeAddressNone+")$"),
		`%q is not a node address: want "block" or "none"`)

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

// parseLoadBalancer parses kube-vip://<network-id> or agent://<network-id>; it accepts a third slash, as in older
// documentation.
func parseLoadBalancer(raw string) (LoadBalancer, error) {
	const want = "want kube-vip://<network-id> or agent://<network-id>"
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return LoadBalancer{}, fmt.Errorf("load balancer %q is not a URL: %s", raw, want)
	}
	var announcer string
	switch scheme {
	case "kube-vip":
		announcer = contract.AnnouncerKubeVIP
	case "agent":
		announcer = contract.AnnouncerAgent
	default:
		return LoadBalancer{}, fmt.Errorf("load balancer %q has the unknown scheme %q: %s", raw, scheme, want)
	}
	id := strings.TrimPrefix(rest, "/")
	if !idPattern.MatchString(id) {
		return LoadBalancer{},
			fmt.Errorf("load balancer %q: %q is not the ID of a public network (24 hexadecimal digits): %s",
				raw, id, want)
	}
	return LoadBalancer{Announcer: announcer, NetworkID: id}, nil
}

// parseURL accepts http and https. Its error does not contain a value with a password.
func parseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
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

// parseIDs parses unique IDs of blocks, separated by commas.
func parseIDs(raw string) ([]string, error) {
	var ids []string
	for part := range strings.SplitSeq(raw, ",") {
		id, err := parseID(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: want IDs separated by commas", err)
		case slices.Contains(ids, id):
			return nil, fmt.Errorf("the IP block %s is listed twice", id)
		}
		ids = append(ids, id)
	}
	return ids, nil
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
