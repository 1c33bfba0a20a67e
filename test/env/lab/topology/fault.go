//go:build linux

package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// Break breaks one VLAN interface that the user has configured on a server, or every one.
func (n *Network) Break(b wire.Break, _ *wire.Nothing) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, h, err := n.alive(b.Server)
	if err != nil {
		return err
	}
	vlans := slices.DeleteFunc(slices.Clone(s.vlans), func(v wire.VLAN) bool { return b.VLAN != 0 && v.ID != b.VLAN })
	if len(vlans) == 0 {
		return fmt.Errorf("server %s: break %s: no such VLAN is configured there", s.Name, b.Fault)
	}
	for _, v := range vlans {
		if err := n.breakVLAN(h, v, b.Fault); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) breakVLAN(h *space.Space, v wire.VLAN, fault wire.Fault) error {
	switch fault {
	case wire.LinkDown:
		link, err := h.Net.LinkByName(n.vlanLink(h, v.ID))
		if err == nil {
			err = h.Net.LinkSetDown(link)
		}
		if err != nil {
			return fmt.Errorf("host %s: set %s down: %w", h.Name, n.vlanLink(h, v.ID), err)
		}
		return nil
	case wire.LinkDeleted:
		return remove(h, n.vlanLink(h, v.ID))
	case wire.WrongVLAN:
		if err := remove(h, n.vlanLink(h, v.ID)); err != nil {
			return err
		}
		if err := n.addTagged(h, v.ID, wrongID(v.ID), v.Address); err != nil {
			return err
		}
		return n.routeOut(h, v)
	default:
		return fmt.Errorf("unknown fault %q", fault)
	}
}

// wrongID is a VLAN ID other than the right one, and another one for each, so that several interfaces can be wrong.
func wrongID(id int) int { return (id+999)%4094 + 1 }

// Repair restores what the user has configured. An interface that was only down keeps what others have put on it.
func (n *Network) Repair(name string, _ *wire.Nothing) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, h, err := n.alive(name)
	if err != nil {
		return err
	}
	for _, v := range s.vlans {
		if err := n.repairVLAN(h, v); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) repairVLAN(h *space.Space, v wire.VLAN) error {
	if !isTagged(h, n.vlanLink(h, v.ID), v.ID) {
		return n.configure(h, v)
	}
	if err := h.Address(n.vlanLink(h, v.ID), v.Address); err != nil {
		return err
	}
	return n.routeOut(h, v)
}

// KillServer takes a server away at once: its port goes down and every process on it dies.
func (n *Network) KillServer(name string, _ *wire.Nothing) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, h, err := n.alive(name)
	if err != nil {
		return err
	}
	s.dead = true
	sw := n.siteOf(s).sw
	port, err := sw.Net.LinkByName(s.port())
	if err == nil {
		err = sw.Net.LinkSetDown(port)
	}
	return errors.Join(err, h.Kill(), n.hosts[s.pod()].Kill())
}

// ReviveServer switches a killed server on again. As after a real restart, only what the user has configured exists.
func (n *Network) ReviveServer(name string, _ *wire.Nothing) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.servers[name]
	if !ok || !s.dead {
		return fmt.Errorf("revive %s: no such server was killed", name)
	}
	// Namespaces are removed some time after the last process; the port must be free now.
	if err := remove(n.siteOf(s).sw, s.port()); err != nil {
		return err
	}
	n.hosts[s.pod()].Close()
	n.hosts[s.Name].Close()
	if err := n.buildServer(s); err != nil {
		return err
	}
	s.dead = false
	return nil
}

// isTagged reports whether a VLAN interface exists and carries that VLAN.
func isTagged(h *space.Space, name string, id int) bool {
	link, err := h.Net.LinkByName(name)
	if err != nil {
		return false
	}
	vlan, ok := link.(*netlink.Vlan)
	return ok && vlan.VlanId == id
}

// tag makes an 802.1Q interface.
func tag(h *space.Space, parent netlink.Link, name string, id int) error {
	link := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index}, VlanId: id}
	if err := h.Net.LinkAdd(link); err != nil {
		return fmt.Errorf("host %s: make %s with VLAN %d: %w", h.Name, name, id, err)
	}
	return nil
}

// remove deletes a link; that it does not exist is not an error.
func remove(h *space.Space, name string) error {
	link, err := h.Net.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = h.Net.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("host %s: delete %s: %w", h.Name, name, err)
	}
	return nil
}

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// isUnsupported reports that the kernel has no such kind of link.
func isUnsupported(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) }
