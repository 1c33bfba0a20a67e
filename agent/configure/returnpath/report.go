//go:build linux

package returnpath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
)

// failed notes what could not be done and returns it.
func (k *Reconciler) failed(err error) error {
	problem := strings.ReplaceAll(err.Error(), "\n", "; ")
	k.mu.Lock()
	k.status.Managing, k.status.Problem, k.status.Clash = false, problem, false
	k.mu.Unlock()
	k.record(Notice{Warning: true, Reason: ReasonFailed, Message: "the way of replies cannot be kept: " + problem})
	return err
}

// blocked notes that nothing is done for a reason that others tell of.
func (k *Reconciler) blocked(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Managing, k.status.Problem, k.status.Clash = false, why, false
}

// clashed notes that nothing is done because of somebody else.
func (k *Reconciler) clashed(problem string) {
	k.mu.Lock()
	k.status.Managing, k.status.Problem, k.status.Clash = false, problem, true
	k.mu.Unlock()
	k.record(Notice{Warning: true, Reason: ReasonMarkClash, Message: "the way of replies is not managed: " + problem})
}

// succeeded notes that the kernel is as it shall be, after the changes that were done.
func (k *Reconciler) succeeded(t target, o observed, done []string) {
	status := Status{Managing: len(t.blocks) > 0 && o.link != nil && o.link.up}
	for _, b := range t.blocks {
		status.Blocks = append(status.Blocks, b.CIDR.Masked())
	}
	switch {
	case o.link == nil:
		status.Problem = "there is no VLAN interface"
	case !o.link.up:
		status.Interface, status.Problem = o.link.name, o.link.name+" is down"
	default:
		status.Interface = o.link.name
	}
	k.mu.Lock()
	status.Repairs = k.status.Repairs
	notice := judge(status, slices.Equal(status.Blocks, k.kept), done)
	if notice.Reason == ReasonRepaired {
		status.Repairs++
	}
	if status.Managing || len(status.Blocks) == 0 {
		k.kept = status.Blocks
	}
	k.status = status
	k.mu.Unlock()
	if notice.Reason == "" {
		k.forget()
		return
	}
	k.record(notice)
}

// judge says what a pass that went well is worth telling. same tells that the same blocks were kept before.
func judge(s Status, same bool, done []string) Notice {
	switch {
	case len(done) == 0:
		return Notice{}
	case len(s.Blocks) == 0:
		return Notice{Reason: ReasonRemoved, Message: "no block needs a way for replies any more: " + summary(done)}
	case !s.Managing:
		return Notice{}
	case same:
		return Notice{Reason: ReasonRepaired, Message: "the way of replies was disturbed and is repaired: " + summary(done)}
	default:
		return Notice{Reason: ReasonManaged, Message: fmt.Sprintf("replies from %s leave by %s", list(s.Blocks), s.Interface)}
	}
}

// summary names the first changes.
func summary(done []string) string {
	if len(done) <= maxTold {
		return strings.Join(done, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(done[:maxTold], ", "), len(done)-maxTold)
}

func list(blocks []netip.Prefix) string {
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		texts[i] = b.String()
	}
	return strings.Join(texts, ", ")
}

// record hands a notice on, unless it is the one that was told last.
func (k *Reconciler) record(n Notice) {
	k.mu.Lock()
	same := k.told == n
	k.told = n
	k.mu.Unlock()
	if !same {
		k.config.Tell(n)
	}
}

// forget lets a failure that comes again after a while be told again.
func (k *Reconciler) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = Notice{}
}

// restoreFilters gives the reverse path filters that the agent made loose their former values.
func (m machine) restoreFilters(ctx context.Context) error {
	links, err := dump(ctx, netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		if _, recorded, _ := ownership.ParseRecord(l.Attrs().Alias); !recorded {
			continue
		}
		if err := m.journal.Restore(l.Attrs().Index, ownership.RPFilter); err != nil && !ownership.Gone(err) {
			errs = append(errs, fmt.Errorf("restore the reverse path filter of %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}
