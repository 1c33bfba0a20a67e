package check

import (
	"net/netip"
	"slices"
	"time"
)

// fault is something wrong on a node or in what was published, and what must be found first.
type fault struct {
	inject func(*Expected, *Snapshot)
	id     ID
	status Status
	reason string
}

// nodeStatus is what the fault makes of a healthy node.
func (f fault) nodeStatus() Status {
	if f.status == Warn {
		return OK
	}
	return f.status
}

// nodeWith is a healthy node with faults. Routes are looked up once all are there, as the kernel would.
func nodeWith(injections ...func(*Expected, *Snapshot)) (Expected, Snapshot) {
	e := expectedNode()
	s := goodNode()
	for _, inject := range injections {
		inject(&e, &s)
	}
	askRoutes(e, &s)
	return e, s
}

func editLink(name string, edit func(*Link)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.Links {
			if s.Links[i].Name == name {
				edit(&s.Links[i])
			}
		}
	}
}

func editBond(edit func(*Bond)) func(*Expected, *Snapshot) {
	return editLink("bond0", func(l *Link) {
		if l.Bond == nil {
			return
		}
		bond := *l.Bond
		edit(&bond)
		l.Bond = &bond
	})
}

func editSlave(name string, edit func(*Slave)) func(*Expected, *Snapshot) {
	return editLink(name, func(l *Link) {
		if l.Slave == nil {
			return // the machine has no bond
		}
		slave := *l.Slave
		edit(&slave)
		l.Slave = &slave
	})
}

func addLink(l Link, addresses ...string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		l.Up = true
		l.LowerUp = true
		l.OperState = "up"
		if s.LinkNamed(l.Name) == nil {
			s.Links = append(s.Links, l)
		}
		for _, a := range addresses {
			addAddress(l.Index, a)(nil, s)
		}
	}
}

// removeLink takes what the kernel takes with it: addresses, settings, and routes in every table.
func removeLink(name string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for _, l := range s.Links {
			if l.Name == name {
				s.Addresses = slices.DeleteFunc(s.Addresses, func(a Address) bool { return a.LinkIndex == l.Index })
				for table := range s.Tables {
					s.Tables[table] = slices.DeleteFunc(s.Tables[table],
						func(r Route) bool { return r.LinkIndex == l.Index })
				}
			}
		}
		s.Links = slices.DeleteFunc(s.Links, func(l Link) bool { return l.Name == name })
		delete(s.Settings, name)
	}
}

func editSettings(name string, edit func(Settings)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		if settings, has := s.Settings[name]; has {
			edit(settings)
		}
	}
}

// setSetting sets a setting that is read, for a check of another one would never fail.
func setSetting(name, key string, value int) func(*Expected, *Snapshot) {
	if !slices.Contains(SettingNames(), key) {
		panic(key + " is not in SettingNames")
	}
	return editSettings(name, func(s Settings) { s[key] = value })
}

func editARP(target netip.Addr, edit func(*ARPAnswer)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.ARP {
			if s.ARP[i].Target == target {
				edit(&s.ARP[i])
			}
		}
	}
}

func silence(a *ARPAnswer) {
	a.MACs = nil
	a.Replied = false
	a.RTT = 0
}

func slow(a *ARPAnswer) {
	if a.Replied {
		a.RTT = 300 * time.Millisecond
	}
}

// twice lets another machine answer, too.
func twice(a *ARPAnswer) {
	if a.Replied {
		a.MACs = []string{gatewayMAC, "02:00:00:00:00:66"}
	}
}

func editAddress(addr netip.Addr, edit func(*Address)) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		for i := range s.Addresses {
			if s.Addresses[i].Prefix.Addr() == addr {
				edit(&s.Addresses[i])
			}
		}
	}
}

func addAddress(link int, prefix string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Addresses = append(s.Addresses, Address{LinkIndex: link, Prefix: netip.MustParsePrefix(prefix)})
	}
}

func removeAddress(addr netip.Addr) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Addresses = slices.DeleteFunc(s.Addresses, func(a Address) bool { return a.Prefix.Addr() == addr })
	}
}

// prefixLength makes the subnet of the node's address smaller.
func prefixLength(bits int) func(*Expected, *Snapshot) {
	return editAddress(nodeIP, func(a *Address) { a.Prefix = netip.PrefixFrom(nodeIP, max(bits, a.Prefix.Bits())) })
}

func setTable(table int, routes ...Route) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) { s.Tables[table] = slices.Clone(routes) }
}

func addRoute(table int, destination string, link int) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Tables[table] = append([]Route{{Destination: netip.MustParsePrefix(destination), LinkIndex: link,
			Type: "unicast"}}, s.Tables[table]...)
	}
}

func removeRules(match func(Rule) bool) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) { s.Rules = slices.DeleteFunc(s.Rules, match) }
}

func addProgram(link int, hook, name string) func(*Expected, *Snapshot) {
	return func(_ *Expected, s *Snapshot) {
		s.Programs = append(s.Programs, Program{LinkIndex: link, Hook: hook, Name: name})
	}
}

func bySource(r Rule) bool { return r.Source.IsValid() }
func byMark(r Rule) bool   { return r.Mask != 0 }

func both(injections ...func(*Expected, *Snapshot)) func(*Expected, *Snapshot) {
	return func(e *Expected, s *Snapshot) {
		for _, inject := range injections {
			inject(e, s)
		}
	}
}

func managing(e *Expected, s *Snapshot) {
	e.Mask = 0x2000
	for i := range s.Rules {
		if s.Rules[i].Mask != 0 {
			s.Rules[i].Protocol = ManagedProtocol
		}
	}
}
