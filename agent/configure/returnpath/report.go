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

// failed records what could not be done and returns it.
func (k *Reconciler) failed(err error) error {
	problem := strings.ReplaceAll(err.Error(), "\n", "; ")
	k.mu.Lock()
	k.status.Managing = false
	k.status.Problem = problem
	k.status.Clash = false
	k.mu.Unlock()
	k.record(Notice{Warning: true, Reason: ReasonFailed, Message: "the return path cannot be configured: " + problem})
	return err
}

// blocked records that nothing is done for a reason that others report.
func (k *Reconciler) blocked(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Managing = false
	k.status.Problem = why
	k.status.Clash = false
}

// clashed records that nothing is done because of another program.
func (k *Reconciler) clashed(problem string) {
	k.mu.Lock()
	k.status.Managing = false
	k.status.Problem = problem
	k.status.Clash = true
	k.mu.Unlock()
	k.record(Notice{Warning: true, Reason: ReasonMarkClash, Message: "the return path is not managed: " + problem})
}

// succeeded records that the kernel is in the wanted state, after the changes that were made.
func (k *Reconciler) succeeded(t target, o observed, done []string) {
	status := Status{Managing: len(t.blocks) > 0 && o.link != nil && o.link.up}
	for _, b := range t.blocks {
		status.Blocks = append(status.Blocks, b.CIDR.Masked())
	}
	switch {
	case o.link == nil:
		status.Problem = "there is no VLAN interface"
	case !o.link.up:
		status.Interface = o.link.name
		status.Problem = o.link.name + " is down"
	default:
		status.Interface = o.link.name
	}
	k.mu.Lock()
	status.Repairs = k.status.Repairs
	notice := noticeFor(status, slices.Equal(status.Blocks, k.kept), done)
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

// noticeFor returns what to record about a successful pass. same reports whether the same blocks were kept before.
func noticeFor(s Status, same bool, done []string) Notice {
	switch {
	case len(done) == 0:
		return Notice{}
	case len(s.Blocks) == 0:
		return Notice{Reason: ReasonRemoved, Message: "no block needs a return path any more: " + summary(done)}
	case !s.Managing:
		return Notice{}
	case same:
		return Notice{
			Reason:  ReasonRepaired,
			Message: "the return path was changed by another program and is repaired: " + summary(done),
		}
	default:
		return Notice{Reason: ReasonManaged, Message: fmt.Sprintf("replies from %s leave by %s", list(s.Blocks),
			s.Interface)}
	}
}

// summary lists the first changes.
func summary(done []string) string {
	if len(done) <= maxReported {
		return strings.Join(done, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(done[:maxReported], ", "), len(done)-maxReported)
}

func list(blocks []netip.Prefix) string {
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		texts[i] = b.String()
	}
	return strings.Join(texts, ", ")
}

// record passes a notice on, unless it equals the previous one.
func (k *Reconciler) record(n Notice) {
	k.mu.Lock()
	same := k.lastNotice == n
	k.lastNotice = n
	k.mu.Unlock()
	if !same {
		k.config.Record(n)
	}
}

// forget makes a failure that comes back after a while be recorded again.
func (k *Reconciler) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastNotice = Notice{}
}

// restoreFilters gives the reverse path filters that the agent made loose their previous values.
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
