package vlan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// model is a kernel in memory that rejects what a real one rejects. Aliases are kept encoded, as a real one does.
type model struct {
	links     []Link
	group     map[int]int
	addresses []check.Address
	next      int
	// left is how many changes are executed until the agent is killed; negative means never.
	left int
	// changes counts what was changed.
	changes int
	// mu is held by a goroutine that hands the model over to another one.
	mu sync.Mutex
}

func (m *model) handOver() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

var (
	errKilled = errors.New("the agent was killed here")
	// inherited are the settings that a new interface begins with: those of "default".
	inherited = ownership.Settings{ownership.RPFilter: 1, ownership.ARPIgnore: 2, ownership.ARPFilter: 1,
		ownership.ARPAnnounce: 0, ownership.ProxyARP: 1,
		ownership.AcceptLocal: 0, ownership.PromoteSecondaries: 0, ownership.SrcValidMark: 0}
)

func newModel() *model { return &model{group: map[int]int{}, next: 1, left: -1} }

// add adds a link as a person would.
func (m *model) add(l Link) *Link {
	l.Index = m.next
	m.next++
	if l.VLAN != nil && l.Settings == nil {
		l.Settings = cloned(inherited)
	}
	m.links = append(m.links, l)
	return &m.links[len(m.links)-1]
}

func cloned(s ownership.Settings) ownership.Settings {
	c := ownership.Settings{}
	for key, value := range s {
		c[key] = value
	}
	return c
}

// clone copies the node, but not when the agent is killed.
func (m *model) clone() *model {
	c := newModel()
	c.next = m.next
	c.addresses = slices.Clone(m.addresses)
	for _, l := range m.links {
		l.Settings = cloned(l.Settings)
		c.links = append(c.links, l)
	}
	for index, group := range m.group {
		c.group[index] = group
	}
	return c
}

func (m *model) Look(context.Context) (Observed, error) {
	m.handOver()
	var links []Link
	for _, l := range m.links {
		l.Settings = cloned(l.Settings)
		if l.VLAN == nil {
			l.Settings = nil
		}
		l.Group = m.group[l.Index]
		links = append(links, l)
	}
	return Recognize(links, slices.Clone(m.addresses)), nil
}

// recognized is one link with what the agent recognizes of it.
func (m *model) recognized(index int) Link {
	seen, _ := m.Look(context.Background())
	return *seen.indexed(index)
}

func (m *model) change() error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	m.changes++
	return nil
}

func (m *model) link(index int) (*Link, error) {
	for i := range m.links {
		if m.links[i].Index == index {
			return &m.links[i], m.change()
		}
	}
	return nil, fmt.Errorf("no link %d", index)
}

func (m *model) Make(name string, parent, id, mtu int) (int, error) {
	below, err := m.link(parent)
	if err != nil {
		return 0, err
	}
	for _, l := range m.links {
		if l.Name == name || l.VLAN != nil && l.Parent == parent && l.VLAN.ID == id && l.VLAN.Protocol == "802.1q" {
			return 0, fmt.Errorf("make %s: file exists", name)
		}
	}
	if mtu > below.MTU {
		return 0, errors.New("MTU out of range")
	}
	made := m.add(Link{Link: check.Link{Name: name, Parent: parent, MTU: mtu, MAC: below.MAC,
		VLAN: &check.VLAN{ID: id, Protocol: "802.1q"}}})
	m.group[made.Index] = ownership.BirthGroup
	return made.Index, nil
}

func (m *model) Delete(index int) error {
	l, err := m.link(index)
	if err != nil {
		return err
	}
	if seen := m.recognized(index); !seen.Ours || !seen.Record.Made {
		return fmt.Errorf("%s does not belong to the agent", l.Name)
	}
	m.remove(index)
	return nil
}

// remove deletes a link and everything attached to it.
func (m *model) remove(index int) {
	for _, l := range slices.Clone(m.links) {
		if l.Parent == index {
			m.remove(l.Index)
		}
	}
	m.links = slices.DeleteFunc(m.links, func(l Link) bool { return l.Index == index })
	m.addresses = slices.DeleteFunc(m.addresses, func(a check.Address) bool { return a.LinkIndex == index })
	delete(m.group, index)
}

func (m *model) Note(index int, change func(*ownership.Record)) error {
	l, err := m.link(index)
	if err != nil {
		return err
	}
	seen := m.recognized(index)
	record := seen.Record
	if seen.Unreadable != "" {
		return errors.New(seen.Unreadable)
	}
	if !seen.Ours {
		record.Alias = l.Alias
	}
	change(&record)
	if l.Alias = record.Alias; !record.Empty() {
		l.Alias, err = record.Encode()
	}
	if (record.Made || l.Alias == "") && m.group[index] == ownership.BirthGroup {
		m.group[index] = 0
	}
	return err
}

func (m *model) SetSettings(index int, settings ownership.Settings) error {
	l, err := m.link(index)
	if err != nil {
		return err
	}
	for key, value := range settings {
		l.Settings[key] = value
	}
	return nil
}

func (m *model) SetUp(index int, up bool) error {
	l, err := m.link(index)
	if err != nil {
		return err
	}
	if up && !m.isUp(l.Parent) {
		return errors.New("network is down")
	}
	l.Up = up
	return nil
}

func (m *model) isUp(index int) bool {
	return slices.ContainsFunc(m.links, func(l Link) bool { return l.Index == index && l.Up })
}

func (m *model) SetMTU(index, mtu int) error {
	l, err := m.link(index)
	if err == nil {
		l.MTU = mtu
	}
	return err
}

func (m *model) SetMAC(index int, mac string) error {
	l, err := m.link(index)
	if err == nil {
		l.MAC = mac
	}
	return err
}

func (m *model) AddAddress(index int, prefix netip.Prefix) error {
	if _, err := m.link(index); err != nil {
		return err
	}
	if a := (check.Address{LinkIndex: index, Prefix: prefix}); !slices.Contains(m.addresses, a) {
		m.addresses = append(m.addresses, a)
	}
	return nil
}

func (m *model) DeleteAddress(index int, prefix netip.Prefix) error {
	if _, err := m.link(index); err != nil {
		return err
	}
	m.addresses = slices.DeleteFunc(m.addresses, func(a check.Address) bool {
		return a.LinkIndex == index && a.Prefix == prefix
	})
	return nil
}
