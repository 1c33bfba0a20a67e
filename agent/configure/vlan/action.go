package vlan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// Observed is what the node has.
type Observed struct {
	Links []Link
	// Addresses are the IPv4 addresses, Defaults the default routes of the main table.
	Addresses []check.Address
	Defaults  []check.Route
}

// Link is a network interface with what the agent noted on it.
type Link struct {
	check.Link
	// Group is IFLA_GROUP.
	Group int
	// Ours reports whether the agent made or adopted the link; Record holds which, and what it did.
	Ours   bool
	Record ownership.Record
	// Unreadable is why the record cannot be read. Such a link is not touched.
	Unreadable string
	// Settings are read of VLAN links; nil where the interface has no IPv4.
	Settings ownership.Settings
}

// Recognize returns what was observed, with the links that the agent made or adopted.
func Recognize(links []Link, addresses []check.Address) Observed {
	o := Observed{Links: links, Addresses: addresses}
	for i := range o.Links {
		l := &o.Links[i]
		below := o.indexed(l.Parent)
		record, ours, err := ownership.Read(ownership.Link{Name: l.Name, Alias: l.Alias, Group: l.Group,
			Tagged: l.VLAN != nil && l.VLAN.Protocol == "802.1q" && l.Parent != 0 && below != nil && below.VLAN == nil,
			Port:   l.Master != 0, Up: l.Up,
			Addressed: o.anyOn(l.Index, func(check.Address) bool { return true }),
		})
		l.Ours = ours
		l.Record = record
		if err != nil {
			l.Unreadable = fmt.Sprintf("%s: the record of what the agent did cannot be read: %v", l.Name, err)
		}
	}
	return o
}

// inUse returns what would be lost with a link that the agent made: the kernel deletes what is on top of it, too, and a
// bridge or bond loses a port. Empty when nothing would.
func (o Observed) inUse(l Link) string {
	if master := o.indexed(l.Master); l.Master != 0 && master != nil {
		return fmt.Sprintf("%s, which the agent made, stays: it is a port of %s", l.Name, master.Name)
	}
	if above := o.find(func(a Link) bool { return a.Parent == l.Index }); above != nil {
		return fmt.Sprintf("%s, which the agent made, stays: %s is on it", l.Name, above.Name)
	}
	return ""
}

func (o Observed) find(match func(Link) bool) *Link {
	if at := slices.IndexFunc(o.Links, match); at >= 0 {
		return &o.Links[at]
	}
	return nil
}

func (o Observed) indexed(index int) *Link {
	return o.find(func(l Link) bool { return l.Index == index })
}

// anyOn reports whether an address of a link matches.
func (o Observed) anyOn(index int, match func(check.Address) bool) bool {
	return slices.ContainsFunc(o.Addresses, func(a check.Address) bool { return a.LinkIndex == index && match(a) })
}

func (o Observed) has(index int, prefix netip.Prefix) bool {
	return o.anyOn(index, func(a check.Address) bool { return a.Prefix == prefix })
}

// snapshot is the input that the checks need to find the uplink.
func (o Observed) snapshot() check.Snapshot {
	snapshot := check.Snapshot{Addresses: o.Addresses, Tables: map[int][]check.Route{check.TableMain: o.Defaults}}
	for _, l := range o.Links {
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

// run executes a plan.
type run struct {
	kernel Kernel
	prober Prober
	// made is the index of the link that the plan made; it is unknown when the plan is computed.
	made int
}

// action is one step of a plan.
type action struct {
	text string
	// silent actions only keep the record of the link.
	silent bool
	do     func(ctx context.Context, r *run) error
}

func (a action) String() string { return a.text }

// action returns an action on the link; its index is 0 when the plan makes it.
func (l Link) action(text string, do func(k Kernel, index int) error) action {
	return action{text: text, do: func(_ context.Context, r *run) error {
		return do(r.kernel, cmp.Or(l.Index, r.made))
	}}
}

// update changes the record of the link.
func (l Link) update(text string, change func(*ownership.Record)) action {
	a := l.action(text, func(k Kernel, index int) error { return k.Note(index, change) })
	a.silent = true
	return a
}

func (l Link) setSettings(settings ownership.Settings) action {
	return l.action(fmt.Sprintf("set %s of %s", settings, l.Name), func(k Kernel, index int) error {
		return k.SetSettings(index, settings)
	})
}

func (l Link) setUp(text string, up bool) action {
	return l.action(text+" "+l.Name, func(k Kernel, index int) error { return k.SetUp(index, up) })
}

func (l Link) deleteAddress(prefix netip.Prefix) action {
	return l.action(fmt.Sprintf("removed %s from %s", prefix, l.Name), func(k Kernel, index int) error {
		return k.DeleteAddress(index, prefix)
	})
}

// addAddress probes first (RFC 5227, section 2.1.1, in one short round): two machines with one address harm both.
func (l Link) addAddress(prefix netip.Prefix) action {
	a := l.action(fmt.Sprintf("added %s to %s", prefix, l.Name), func(k Kernel, index int) error {
		return k.AddAddress(index, prefix)
	})
	add := a.do
	a.do = func(ctx context.Context, r *run) error {
		if r.prober != nil && !prefix.Addr().IsLinkLocalUnicast() {
			answers, err := r.prober.Ask(ctx, l.Name, []arp.Question{{Target: prefix.Addr(),
				Source: netip.IPv4Unspecified()}})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			// A failed probe, for example without a carrier, is no reason to leave a node without its address.
			if err == nil && len(answers) == 1 && len(answers[0].MACs) > 0 {
				return fmt.Errorf("%s was not added to %s: the machine with the hardware address %s answers for it; "+
					"compare the servers' addresses in the network", prefix.Addr(), l.Name, answers[0].MACs[0])
			}
		}
		return add(ctx, r)
	}
	return a
}

// release undoes what was done to a link, or returns the problem that prevents it.
func release(l Link, s Observed) (actions []action, problem string) {
	if l.Unreadable != "" {
		return nil, l.Unreadable
	}
	if l.Record.Made {
		if problem = s.inUse(l); problem != "" {
			return nil, problem
		}
		return []action{l.action("deleted "+l.Name, Kernel.Delete)}, ""
	}
	for _, p := range l.Record.Addresses {
		if s.has(l.Index, p) {
			actions = append(actions, l.deleteAddress(p))
		}
	}
	if back := l.Settings.Missing(l.Record.Before); len(back) > 0 {
		actions = append(actions, l.setSettings(back))
	}
	if l.Record.Down && l.Up {
		actions = append(actions, l.setUp("took down", false))
	}
	return append(actions, l.update("recorded on "+l.Name+" what was undone", func(record *ownership.Record) {
		*record = ownership.Record{Alias: record.Alias}
	})), ""
}

// Cleanup undoes everything that the agent did to links: it deletes those that it made and restores those that it
// adopted. No Reconciler may run meanwhile. A second call finds nothing to do. done describes what was done.
func Cleanup(ctx context.Context, kernel Kernel) (done []string, err error) {
	seen, err := kernel.Look(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range seen.Links {
		if !l.Ours && l.Unreadable == "" {
			continue
		}
		actions, problem := release(l, seen)
		if problem != "" {
			errs = append(errs, errors.New(problem))
		}
		for _, a := range actions {
			if err := a.do(ctx, &run{kernel: kernel}); err != nil {
				errs = append(errs, fmt.Errorf("clean up %s: %w", l.Name, err))
				break
			}
			if !a.silent {
				done = append(done, a.text)
			}
		}
	}
	return done, errors.Join(errs...)
}
