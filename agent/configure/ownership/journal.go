//go:build linux

package ownership

import (
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
)

// Journal writes the records of links. All reconcilers of a process share one, because a record has several writers.
// The zero value is ready to use.
type Journal struct {
	mu sync.Mutex
}

// Update reads the record of a link, calls change, and writes the record when it changed. A link without a record
// counts as adopted from then on; one whose record became empty is restored to what a person had.
func (j *Journal) Update(index int, change func(*Record)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read the record of interface %d: %w", index, err)
	}
	alias := link.Attrs().Alias
	group := int(link.Attrs().Group)
	record, has, err := Read(alias, group)
	if err != nil {
		return fmt.Errorf("read the record of %s: %w", link.Attrs().Name, err)
	}
	if !has {
		record.Alias = alias
	}
	change(&record)
	wanted := record.Alias
	if !record.Empty() {
		if wanted, err = record.Encode(); err != nil {
			return fmt.Errorf("%s: %w", link.Attrs().Name, err)
		}
	}
	if wanted == alias {
		return nil
	}
	return setAlias(index, wanted, record.Made && group == BirthGroup)
}

// Keep enforces settings of a link, and records their previous values unless the agent made the link. It reports
// whether anything changed.
func (j *Journal) Keep(index int, wanted Settings) (changed bool, err error) {
	has, err := ReadSettings(index)
	if err != nil {
		return false, err
	}
	missing := has.Missing(wanted)
	if len(missing) == 0 {
		return false, nil
	}
	before := Settings{}
	for key := range missing {
		before[key] = has[key]
	}
	if err := j.Update(index, func(r *Record) {
		if !r.Made {
			r.Changes(before)
		}
	}); err != nil {
		return false, err
	}
	return true, WriteSettings(index, missing)
}

// Restore gives settings of a link the values in its record, and removes them from the record.
func (j *Journal) Restore(index int, settings ...Setting) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read the record of interface %d: %w", index, err)
	}
	record, has, err := ParseRecord(link.Attrs().Alias)
	if err != nil || !has {
		return err
	}
	before := Settings{}
	for _, s := range settings {
		if value, noted := record.Before[s]; noted {
			before[s] = value
		}
	}
	if len(before) == 0 {
		return nil
	}
	if err := WriteSettings(index, before); err != nil {
		return err
	}
	return j.Update(index, func(r *Record) {
		for s := range before {
			delete(r.Before, s)
		}
	})
}
