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
	// shortestGrace is the longest time for which the API's lists have been seen to lag behind: a younger
	// orphan may be none.
	shortestGrace = 10 * time.Second
	// highestRate keeps a slip of the finger from switching the budget of requests off.
	highestRate = 100
)

// ParseLoadBalancer reads kube-vip://<network-id> or agent://<network-id>; a third slash, as older
// documentation has it, is read too.
func ParseLoadBalancer(raw string) (LoadBalancer, error) {
	const want = "want kube-vip://<network-id> or agent://<network-id>"
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return LoadBalancer{}, fmt.Errorf("load balancer %q is no URL: %s", raw, want)
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
		return LoadBalancer{}, fmt.Errorf("load balancer %q: %q is no ID of a public network (24 hexadecimal digits): %s", raw, id, want)
	}
	return LoadBalancer{Announcer: announcer, NetworkID: id}, nil
}

func parseLocation(raw string) (string, error) {
	if !locationPattern.MatchString(raw) {
		return "", fmt.Errorf("location %q is no code of three capital letters such as ASH", raw)
	}
	return raw, nil
}

// parseURL accepts http and https. It does not repeat the value when it holds a password.
func parseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("the value is no URL: want https://host")
	case u.User != nil:
		return "", errors.New("a URL with a user name is not allowed: set clientID and clientSecret in the place of it")
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return "", fmt.Errorf("%q is no http or https URL: want https://host", raw)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q has a query or fragment: want https://host", raw)
	}
	return strings.TrimSuffix(raw, "/"), nil
}

func parseCount(raw string) (int, error) {
	count, err := strconv.Atoi(raw)
	if err != nil || count < 0 {
		return 0, fmt.Errorf("%q is no number from 0 up", raw)
	}
	return count, nil
}

func parsePort(raw string) (int, error) {
	port, err := strconv.Atoi(raw)
	if err != nil || port < 0 || port > 65535 {
		return 0, fmt.Errorf("%q is no port from 0 to 65535", raw)
	}
	return port, nil
}

func parseAnnotation(raw string) (string, error) {
	if complaints := validation.IsQualifiedName(raw); len(complaints) > 0 {
		return "", fmt.Errorf("%q is no name of an annotation: %s", raw, strings.Join(complaints, "; "))
	}
	return raw, nil
}

func parseSelector(raw string) (labels.Selector, error) {
	selector, err := labels.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%q is no label selector: %w", raw, err)
	}
	return selector, nil
}

func parseID(raw string) (string, error) {
	if !idPattern.MatchString(raw) {
		return "", fmt.Errorf("%q is no ID of an IP block (24 hexadecimal digits)", raw)
	}
	return raw, nil
}

// parseIDs reads IDs of blocks separated by commas, each once.
func parseIDs(raw string) ([]string, error) {
	var ids []string
	for part := range strings.SplitSeq(raw, ",") {
		id, err := parseID(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: want IDs separated by commas", err)
		case slices.Contains(ids, id):
			return nil, fmt.Errorf("the IP block %s stands there twice", id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func parseAllocation(raw string) (string, error) {
	if raw != contract.AllocationDedicated && raw != contract.AllocationShared {
		return "", fmt.Errorf(`%q is no IP allocation: want "dedicated" or "shared"`, raw)
	}
	return raw, nil
}

func parseNodeAddress(raw string) (string, error) {
	if raw != NodeAddressBlock && raw != NodeAddressNone {
		return "", fmt.Errorf(`%q says nothing of where nodes get their own addresses: want "block" or "none"`, raw)
	}
	return raw, nil
}

func parseSize(raw string) (string, error) {
	if !sizePattern.MatchString(raw) {
		return "", fmt.Errorf(`%q is no block size: want "/28", "/29" or "/30"`, raw)
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
		return 0, fmt.Errorf("%q is no duration from %s up: want for example 1h", raw, shortestGrace)
	}
	return grace, nil
}

func parseRate(raw string) (int, error) {
	rate, err := strconv.Atoi(raw)
	if err != nil || rate < 1 || rate > highestRate {
		return 0, fmt.Errorf("%q is no number from 1 to %d", raw, highestRate)
	}
	return rate, nil
}
