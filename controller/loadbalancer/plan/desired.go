package plan

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Options are the settings of the controller that decisions look at. No zero value stands for a default.
type Options struct {
	// Announcer is the kind of announcer, see contract.Carriers.
	Announcer string
	// ReleaseWait is how long at most a release waits until no machine answers for the address; 0 for an announcer that
	// withdraws an address only after the Service is gone.
	ReleaseWait time.Duration
	// Selector selects the Nodes that may carry traffic; nil for what each Node names, see contract.Carriers.
	Selector labels.Selector
	// DryRun reports that nothing is changed.
	DryRun bool
	// Location in which all blocks are bought; empty leaves it to the annotation LocationAnnotation of each Service.
	Location, LocationAnnotation string
	// LocationOfNetwork has blocks bought where the public network is for Services that name no location.
	LocationOfNetwork bool
	// Allocation of Services that name none: contract.AllocationDedicated or contract.AllocationShared.
	Allocation string
	// BlockSize of blocks to buy where the Service names none, such as "/29".
	BlockSize string
	// MaxBlocks is the most blocks that may be bought for the cluster; 0 for what the network holds.
	MaxBlocks int
	// MaxRetained is the most blocks of the cluster that may outlive their Services, and MaxRetainedPerNamespace the
	// most of Services of one namespace; 0 for none.
	MaxRetained, MaxRetainedPerNamespace int
}

// Desired is what the author of a Service asks for, as far as it can be known without the account.
type Desired struct {
	// Shared is true when an address of the pool will do; false for a block of its own. AllocationDemanded is true when
	// the Service itself says so and not an option, a change of which does not disturb what is there.
	Shared, AllocationDemanded bool
	// IPBlock is the name of the IPBlock that the Service names; empty when it names none. Which block that is,
	// Facts.NamedBlock and Facts.NamedShared say.
	IPBlock string
	// SharedAddress is the key with which the Service has its address together with others; empty for one of its own.
	// KeepGroup is true where what it asks for is not looked at: it stays with those who have its address.
	SharedAddress string
	KeepGroup     bool
	// Retain is true when the block outlives the Service.
	Retain bool
	// Network is the name of the public network that the Service asks for; empty for none.
	Network string
	// Request is what the author asks for of the block.
	ipblock.Request
}

// reading collects the problems of a Service's annotations, so that all are reported at once.
type reading struct {
	service  *corev1.Service
	problems []error
}

func (r *reading) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

// value returns an annotation without the blanks around it.
func (r *reading) value(name string) string { return strings.TrimSpace(r.service.Annotations[name]) }

// Asked is what the author of a Service has written, to be compared.
type Asked [sha256.Size]byte

// askedBy returns what ReadDesired would read of a Service.
func (opts Options) askedBy(service *corev1.Service) Asked {
	ours := contract.OwnedServiceAnnotations()
	fields := []string{string(service.UID), UsersLoadBalancerIP(service)}
	for _, name := range slices.Sorted(maps.Keys(service.Annotations)) {
		if (strings.HasPrefix(name, contract.Prefix) || name == opts.LocationAnnotation) && !slices.Contains(ours,
			name) {
			fields = append(fields, name, service.Annotations[name])
		}
	}
	return sha256.Sum256([]byte(strings.Join(fields, "\x00")))
}

// ReadDesired reads what the Service asks for. The error names every problem and its remedy. What could be
// read is returned beside it.
func ReadDesired(service *corev1.Service, opts Options) (Desired, error) {
	r := &reading{service: service}
	r.knownNames(opts.LocationAnnotation)
	allocation := r.oneOf(contract.ServiceIPAllocation, opts.Allocation, contract.AllocationDedicated,
		contract.AllocationShared)
	size, _ := ipblock.ParseSize(r.oneOf(contract.ServiceIPBlockSize, opts.BlockSize, ipblock.BlockSizes()...))
	wanted := Desired{
		Shared:  allocation == contract.AllocationShared,
		IPBlock: namedBy(service),
		Retain:  r.flag(contract.ServiceIPRetain),
		Request: ipblock.Request{Size: size, Replace: r.flag(contract.ServiceIPReplace)},

		SharedAddress: keyOf(service),
		Network:       networkOf(service),
	}
	wanted.AllocationDemanded = r.value(contract.ServiceIPAllocation) != ""
	wanted.SizeSource = "the option ipBlockSize (PNAP_IP_BLOCK_SIZE)"
	if wanted.SizeDemanded = r.value(contract.ServiceIPBlockSize) != ""; wanted.SizeDemanded {
		wanted.SizeSource = "the annotation " + contract.ServiceIPBlockSize + " of the Service"
	}
	if wanted.SharedAddress != "" {
		wanted.Shared = true
		wanted.AllocationDemanded = true
	}
	if wanted.IPBlock != "" {
		wanted.Shared = false
	}
	wanted.Requested, wanted.RequestedSource = r.requested()
	wanted.Location, wanted.LocationSource = opts.locationOf(service)
	r.code(wanted.LocationSource, wanted.Location, "the code of a location, such as ASH")
	r.ipBlock(wanted.IPBlock)
	r.network(wanted.Network)
	r.sharedAddress(wanted.SharedAddress)
	r.contradictions(wanted, opts.BlockSize, opts.LocationAnnotation)
	return wanted, errors.Join(r.problems...)
}

// knownNames refuses annotations that look like ours and mean nothing: a misspelt one would otherwise be
// overlooked until it has cost money.
func (r *reading) knownNames(location string) {
	users := []string{
		contract.ServiceIPAllocation, contract.ServiceIPBlockSize, contract.ServiceIPBlock, contract.ServiceIPRetain,
		contract.ServiceRequestedIP, contract.ServiceIPReplace, contract.ServiceSharedAddress, contract.ServiceNetwork,
		location,
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(r.service.Annotations)) {
		local, ours := strings.CutPrefix(name, contract.Prefix)
		if !ours || !slices.ContainsFunc([]string{"ip-", "requested-", "shared-", "network"},
			func(prefix string) bool { return strings.HasPrefix(local, prefix) }) {
			continue
		}
		switch {
		case slices.Contains(users, name), slices.Contains(contract.OwnedServiceAnnotations(), name):
		case name == contract.ServiceIPLocation:
			r.problem("annotation %s has no meaning here: the option annotationIPLocation names %s instead; use that "+
				"one", name, location)
		default:
			unknown = append(unknown, name)
		}
	}
	switch known := strings.Join(users, ", "); len(unknown) {
	case 0:
	case 1:
		r.problem("annotation %s is not known; correct or remove it; known annotations are %s", some(unknown), known)
	default:
		r.problem("annotations %s are not known; correct or remove them; known annotations are %s", some(unknown),
			known)
	}
}

// mostNames is how many names a message has of a list of any length, and longestName how much of each.
const (
	mostNames   = 5
	longestName = 64
)

// some names a few of many.
func some(names []string) string {
	named := make([]string, 0, mostNames)
	for _, name := range names[:min(len(names), mostNames)] {
		named = append(named, text.Cut(name, longestName, "…"))
	}
	said := strings.Join(named, ", ")
	if more := len(names) - mostNames; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// longestCode bounds codes of phoenixNAP, which become part of requests.
const longestCode = 64

// code refuses a value that cannot be a code of phoenixNAP. An empty one is none.
func (r *reading) code(where, value, what string) {
	foreign := func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}
	if len(value) > longestCode || strings.ContainsFunc(value, foreign) {
		r.problem("%s is %s; it must be %s", where, text.Quote(value), what)
	}
}

// ipBlock refuses what cannot be the name of an IPBlock. An empty one is none.
func (r *reading) ipBlock(name string) {
	if name != "" && (len(name) > longestIPBlock || len(validation.IsDNS1123Subdomain(name)) > 0) {
		r.problem("annotation %s is %s; it must be the name of an IPBlock, such as mail: at most %d lowercase "+
			"letters, digits, hyphens and dots", contract.ServiceIPBlock, text.Quote(name), longestIPBlock)
	}
}

// network refuses what cannot be the name of a public network. An empty one is none.
func (r *reading) network(name string) {
	if name != "" && (len(name) > longestNetwork || len(validation.IsDNS1123Label(name)) > 0) {
		r.problem("annotation %s is %s; it must be the name of a PublicNetwork, such as default: at most %d lowercase "+
			"letters, digits and hyphens", contract.ServiceNetwork, text.Quote(name), longestNetwork)
	}
}

// sharedAddress refuses what cannot be a key, or not with what else the Service asks for. An empty one is none.
func (r *reading) sharedAddress(key string) {
	if key == "" {
		return
	}
	if len(validation.IsValidLabelValue(key)) > 0 {
		r.problem("annotation %s is %s; it must be a word that the Services of one address have in common, such as "+
			"mail: at most 63 letters, digits, hyphens, underscores and dots", contract.ServiceSharedAddress,
			text.Quote(key))
	}
	if r.value(contract.ServiceIPAllocation) == contract.AllocationDedicated {
		r.problem("annotation %s needs an address of a shared block, and %s is %s; remove one of them",
			contract.ServiceSharedAddress, contract.ServiceIPAllocation, contract.AllocationDedicated)
	}
}

// longestIPBlock is how long the definition of the kind lets the name of an IPBlock be.
const longestIPBlock = 63

// longestNetwork is how long the definition of the kind lets the name of a PublicNetwork be.
const longestNetwork = 40

// oneOf reads an annotation with few values; standard where it is empty.
func (r *reading) oneOf(name, standard string, values ...string) string {
	value := cmp.Or(r.value(name), standard)
	if !slices.Contains(values, value) {
		r.problem("annotation %s is %s; it must be one of %s", name, text.Quote(value), strings.Join(values, ", "))
		return standard
	}
	return value
}

func (r *reading) flag(name string) bool {
	switch value := r.value(name); value {
	case "", "false":
		return false
	case contract.TagTrue:
		return true
	default:
		r.problem(`annotation %s is %s; it must be "true" or "false"`, name, text.Quote(value))
		return false
	}
}

// requested returns the address that the user asks for, in the annotation or in spec.loadBalancerIP.
func (r *reading) requested() (netip.Addr, string) {
	annotation := r.value(contract.ServiceRequestedIP)
	spec := UsersLoadBalancerIP(r.service)
	fromAnnotation := r.address("annotation "+contract.ServiceRequestedIP, annotation)
	fromSpec := r.address("spec.loadBalancerIP", spec)
	switch {
	case fromAnnotation.IsValid() && fromSpec.IsValid() && fromAnnotation != fromSpec:
		r.problem("annotation %s asks for address %s and spec.loadBalancerIP for %s; clear one of them",
			contract.ServiceRequestedIP, fromAnnotation, fromSpec)
		return netip.Addr{}, ""
	case fromAnnotation.IsValid():
		return fromAnnotation, "annotation " + contract.ServiceRequestedIP
	default:
		return fromSpec, "spec.loadBalancerIP"
	}
}

func (r *reading) address(field, raw string) netip.Addr {
	if raw == "" {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(raw)
	if err != nil || !address.Unmap().Is4() {
		r.problem("%s %s is no IPv4 address; clear it", field, text.Quote(raw))
		return netip.Addr{}
	}
	return address.Unmap()
}

// contradictions refuses combinations of which one half would have to be ignored.
func (r *reading) contradictions(wanted Desired, poolSize, location string) {
	if wanted.IPBlock != "" {
		for _, name := range []string{contract.ServiceIPAllocation, contract.ServiceIPBlockSize,
			contract.ServiceIPRetain, contract.ServiceIPReplace, location} {
			if r.value(name) != "" {
				r.problem("annotations %s and %s exclude each other: a block of one's own is used as it is; remove one",
					contract.ServiceIPBlock, name)
			}
		}
		return
	}
	if wanted.Shared && wanted.Retain {
		r.problem("annotation %s needs a block of the Service's own, and its allocation is %s; set %s to %s or "+
			"remove it",
			contract.ServiceIPRetain, contract.AllocationShared, contract.ServiceIPAllocation,
			contract.AllocationDedicated)
	}
	if size, _ := ipblock.ParseSize(poolSize); wanted.Shared && wanted.Size != size {
		r.problem("annotation %s has no meaning for a shared block, whose size is the option ipBlockSize (%s); "+
			"remove it", contract.ServiceIPBlockSize, poolSize)
	}
}

// locationOf returns where to buy, in upper case as the API spells it, and where that was or can be set.
// The option overrides the annotation.
func (opts Options) locationOf(service *corev1.Service) (location, source string) {
	const option = "the option location (PNAP_LOCATION)"
	if opts.Location != "" {
		return strings.ToUpper(opts.Location), option
	}
	annotation := "the annotation " + opts.LocationAnnotation + " of the Service"
	if value := strings.TrimSpace(service.Annotations[opts.LocationAnnotation]); value != "" {
		return strings.ToUpper(value), annotation
	}
	return "", annotation + " or " + option
}
