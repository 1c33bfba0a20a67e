package config

import (
	"errors"
	"fmt"
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

var (
	// idPattern is the form of every ID of the API: 24 hexadecimal digits.
	idPattern       = regexp.MustCompile(`^[0-9a-f]{24}$`)
	locationPattern = regexp.MustCompile(`^[A-Z]{3}$`)
	sizePattern     = regexp.MustCompile(`^/(28|29|30)$`)
)

const (
	// shortestGrace is the longest observed delay of the API's lists: a younger orphan may not be one.
	shortestGrace = 10 * time.Second
	// highestRate prevents a typing error from disabling the rate limit.
	highestRate = 100
)

// ParseLoadBalancer parses kube-vip://<network-id> or agent://<network-id>; it accepts a third slash, as in older
// documentation.
func ParseLoadBalancer(raw string) (LoadBalancer, error) {
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

func parseLocation(raw string) (string, error) {
	if !locationPattern.MatchString(raw) {
		return "", fmt.Errorf("location %q is not a code of three capital letters such as ASH", raw)
	}
	return raw, nil
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

func parseCount(raw string) (int, error) {
	count, err := strconv.Atoi(raw)
	if err != nil || count < 0 {
		return 0, fmt.Errorf("%q is not a number of at least 0", raw)
	}
	return count, nil
}

func parsePort(raw string) (int, error) {
	port, err := strconv.Atoi(raw)
	if err != nil || port < 0 || port > 65535 {
		return 0, fmt.Errorf("%q is not a port from 0 to 65535", raw)
	}
	return port, nil
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

func parseID(raw string) (string, error) {
	if !idPattern.MatchString(raw) {
		return "", fmt.Errorf("%q is not the ID of an IP block (24 hexadecimal digits)", raw)
	}
	return raw, nil
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

func parseAllocation(raw string) (string, error) {
	if raw != contract.AllocationDedicated && raw != contract.AllocationShared {
		return "", fmt.Errorf(`%q is not an IP allocation: want "dedicated" or "shared"`, raw)
	}
	return raw, nil
}

func parseNodeAddress(raw string) (string, error) {
	if raw != NodeAddressBlock && raw != NodeAddressNone {
		return "", fmt.Errorf(`%q is not a node address: want "block" or "none"`, raw)
	}
	return raw, nil
}

func parseSize(raw string) (string, error) {
	if !sizePattern.MatchString(raw) {
		return "", fmt.Errorf(`%q is not a block size: want "/28", "/29" or "/30"`, raw)
	}
	return raw, nil
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

func parseRate(raw string) (int, error) {
	rate, err := strconv.Atoi(raw)
	if err != nil || rate < 1 || rate > highestRate {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", raw, highestRate)
	}
	return rate, nil
}
