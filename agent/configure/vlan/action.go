package vlan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
)

// Observed is what the node has.
type Observed struct {
	Links []Link
	// Addresses are the IPv4 addresses.
	Addresses []check.Address
}

// Link is a network interface with what the agent noted on it.
type Link struct {
	check.Link
	// Ours reports whether the agent made or adopted the link; Record holds which, and what it did.
	Ours   bool
	Record ownership.Record
	// Unreadable is why the record cannot be read. Such a link is not touched.
	Unreadable string
	// Settings are read of VLAN links; nil where the interface has no IPv4.
	Settings ownership.Settings
}

func (s Observed) find(match func(Link) bool) *Link {
	if at := slices.IndexFunc(s.Links, match); at >= 0 {
		return &s.Links[at]
	}
	return nil
}

func (s Observed) named(name string) *Link {
	return s.find(func(l Link) bool { return l.Name == name })
}

func (s Observed) indexed(index int) *Link {
	return s.find(func(l Link) bool { return l.Index == index })
}

// on returns the addresses of a link.
func (s Observed) on(index int) []check.Address {
	var found []check.Address
	for _, a := range s.Addresses {
		if a.LinkIndex == index {
			found = append(found, a)
		}
	}
	return found
}

func (s Observed) has(index int, prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.on(index), func(a check.Address) bool { return a.Prefix == prefix })
}

// snapshot is the input that the checks need to find the uplink.
func (s Observed) snapshot() check.Snapshot {
	snapshot := check.Snapshot{Addresses: s.Addresses}
	for _, l := range s.Links {
		snapshot.Links = append(snapshot.Links, l.Link)
	}
	return snapshot
}

// Kernel reads and changes the node's network. A change that is already in effect is not an error.
type Kernel interface {
	// Look reads links and addresses.
	Look(ctx context.Context) (Observed, error)
	// Make makes a VLAN interface (802.1Q) in the group ownership.BirthGroup and returns its index.
	Make(name string, parent, id, mtu int) (index int, err error)
	// Delete deletes a link that the agent made, and rejects any other.
	Delete(index int) error
	// Note changes the record of a link.
	Note(index int, change func(*ownership.Record)) error
	SetSettings(index int, settings ownership.Settings) error
	SetUp(index int, up bool) error
	SetMTU(index, mtu int) error
	SetMAC(index int, mac string) error
	// AddAddress adds an address; a link-local one has the scope link.
	AddAddress(index int, prefix netip.Prefix) error
	DeleteAddress(index int, prefix netip.Prefix) error
}

// Prober probes by ARP, see arp.Prober.
type Prober interface {
	Ask(ctx context.Context, interfaceName string, questions []arp.Question) ([]arp.Answer, error)
}

// action is one step of a plan.
type action interface {
	do(ctx context.Context, r *run) error
	String() string
}

// run executes a plan.
type run struct {
	kernel Kernel
	prober Prober
	// made is the index of the link that the plan made; it is unknown when the plan is computed.
	made int
}

// on returns the link of an action; the index is 0 for the one that the plan makes.
type on struct {
	index int
	name  string
}

func (r *run) index(o on) int {
	if o.index == 0 {
		return r.made
	}
	return o.index
}

type makeLink struct {
	name            string
	parent, id, mtu int
}

func (a makeLink) do(_ context.Context, r *run) (err error) {
	r.made, err = r.kernel.Make(a.name, a.parent, a.id, a.mtu)
	return err
}

func (a makeLink) String() string { return fmt.Sprintf("created %s with VLAN ID %d", a.name, a.id) }

type deleteLink struct{ on }

func (a deleteLink) do(_ context.Context, r *run) error { return r.kernel.Delete(a.index) }
func (a deleteLink) String() string                     { return "deleted " + a.name }

// note records what is about to be changed.
type note struct {
	on
	made, down bool
	before     ownership.Settings
	addresses  []netip.Prefix
}

func (a note) do(_ context.Context, r *run) error {
	return r.kernel.Note(r.index(a.on), func(record *ownership.Record) {
		record.Made = a.made
		record.Down = record.Down || a.down
		record.Changes(a.before)
		for _, p := range a.addresses {
			if !record.Owns(p) {
				record.Addresses = append(record.Addresses, p)
			}
		}
	})
}

func (a note) String() string { return "recorded on " + a.name + " what changes" }

// forget removes from the record what was undone.
type forget struct {
	on
	addresses []netip.Prefix
	all       bool
}

func (a forget) do(_ context.Context, r *run) error {
	return r.kernel.Note(r.index(a.on), func(record *ownership.Record) {
		if a.all {
			*record = ownership.Record{Alias: record.Alias}
			return
		}
		record.Forget(a.addresses)
	})
}

func (a forget) String() string { return "recorded on " + a.name + " what was undone" }

type setSettings struct {
	on
	settings ownership.Settings
}

func (a setSettings) do(_ context.Context, r *run) error {
	return r.kernel.SetSettings(r.index(a.on), a.settings)
}
func (a setSettings) String() string { return fmt.Sprintf("set %s of %s", a.settings, a.name) }

type setUp struct {
	on
	up bool
}

func (a setUp) do(_ context.Context, r *run) error { return r.kernel.SetUp(r.index(a.on), a.up) }
func (a setUp) String() string {
	if a.up {
		return "brought up " + a.name
	}
	return "took down " + a.name
}

type setMTU struct {
	on
	mtu int
}

func (a setMTU) do(_ context.Context, r *run) error { return r.kernel.SetMTU(r.index(a.on), a.mtu) }
func (a setMTU) String() string                     { return fmt.Sprintf("set MTU %d of %s", a.mtu, a.name) }

type setMAC struct {
	on
	mac string
}

func (a setMAC) do(_ context.Context, r *run) error { return r.kernel.SetMAC(r.index(a.on), a.mac) }
func (a setMAC) String() string {
	return "set the hardware address of " + a.name + " to that of its uplink"
}

type addAddress struct {
	on
	prefix netip.Prefix
}

// do probes first (RFC 5227, section 2.1.1, in one short round): two machines with one address harm both.
func (a addAddress) do(ctx context.Context, r *run) error {
	if r.prober != nil && !a.prefix.Addr().IsLinkLocalUnicast() {
		answers, err := r.prober.Ask(ctx, a.name, []arp.Question{{Target: a.prefix.Addr(),
			Source: netip.IPv4Unspecified()}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// A failed probe, for example without a carrier, is no reason to leave a node without its address.
		if err == nil && len(answers) == 1 && len(answers[0].MACs) > 0 {
			return fmt.Errorf("%s was not added to %s: the machine with the hardware address %s answers for it; "+
				"compare the servers' addresses in the network",
				a.prefix.Addr(), a.name, answers[0].MACs[0])
		}
	}
	return r.kernel.AddAddress(r.index(a.on), a.prefix)
}

func (a addAddress) String() string { return fmt.Sprintf("added %s to %s", a.prefix, a.name) }

type deleteAddress struct {
	on
	prefix netip.Prefix
}

func (a deleteAddress) do(_ context.Context, r *run) error {
	return r.kernel.DeleteAddress(r.index(a.on), a.prefix)
}
func (a deleteAddress) String() string { return fmt.Sprintf("removed %s from %s", a.prefix, a.name) }

// Cleanup undoes everything that the agent did to links: it deletes those that it made and restores those that it
// adopted. No Reconciler may run meanwhile. A second call finds nothing to do. done describes what was done.
func Cleanup(ctx context.Context, kernel Kernel) (done []string, err error) {
	seen, err := kernel.Look(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range seen.Links {
		if l.Unreadable != "" {
			errs = append(errs, errors.New(l.Unreadable))
		}
		if !l.Ours {
			continue
		}
		r := &run{kernel: kernel}
		for _, a := range release(l, seen) {
			if err := a.do(ctx, r); err != nil {
				errs = append(errs, fmt.Errorf("clean up %s: %w", l.Name, err))
				break
			}
			if text := texts([]action{a}); text != "" {
				done = append(done, text)
			}
		}
	}
	return done, errors.Join(errs...)
}
