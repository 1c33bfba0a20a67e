package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	modeLACP         = "802.3ad"
	modeActiveBackup = "active-backup"
)

// bondState is what counts about a bond.
type bondState struct {
	name    string
	bond    Bond
	members []Link
}

// bondOf gathers the members of a bond, sorted by name.
func (v view) bondOf(u Link) bondState {
	b := bondState{name: u.Name, bond: *u.Bond}
	for _, l := range v.Links {
		if l.Master == u.Index {
			b.members = append(b.members, l)
		}
	}
	slices.SortFunc(b.members, func(x, y Link) int { return strings.Compare(x.Name, y.Name) })
	return b
}

// names are those of the members that match.
func (b bondState) names(match func(Link) bool) []string {
	var names []string
	for _, l := range b.members {
		if match(l) {
			names = append(names, l.Name)
		}
	}
	return names
}

func (b bondState) down() []string {
	return b.names(func(l Link) bool { return !l.Up || !l.LowerUp || l.Slave != nil && !l.Slave.Up })
}

func (b bondState) String() string {
	text := fmt.Sprintf("%s: mode %s, %d of %d members up", b.name, b.bond.Mode, len(b.members)-len(b.down()),
		len(b.members))
	if b.bond.PartnerMAC != "" {
		text += ", LACP partner " + b.bond.PartnerMAC
	}
	if b.bond.MinLinks > 0 {
		text += fmt.Sprintf(", min_links %d", b.bond.MinLinks)
	}
	return text
}

// checkBond: a bond that has lost members carries traffic, so nothing here is worse than a warning.
func checkBond(v view) Finding {
	if v.trunk.Bond == nil {
		return notApplicable(v.trunk.Name + " is not a bond")
	}
	b := v.bondOf(*v.trunk)
	warn := func(reason, expected, cause string, fixes []Fix) Finding {
		return Finding{Status: Warn, Reason: reason, Expected: expected, Observed: b.String(), Cause: cause,
			Fixes: fixes}
	}
	down := b.down()
	silent := b.names(func(l Link) bool { return l.Slave != nil && l.Slave.NoPartner })
	apart := b.names(func(l Link) bool {
		return l.Slave != nil && b.bond.Aggregator != 0 && l.Slave.Aggregator != b.bond.Aggregator
	})
	switch {
	case b.bond.Mode != modeLACP && b.bond.Mode != modeActiveBackup:
		return warn("UnexpectedBondMode", "mode "+modeLACP,
			fmt.Sprintf("%s has mode %s, the switches of phoenixNAP expect %s", b.name, b.bond.Mode, modeLACP),
			fixBondMode(b))
	case len(down) > 0 || len(b.members) == 0:
		return warn("BondDegraded", "all members up",
			b.name+" has lost members: "+cmp.Or(strings.Join(down, ", "), "none is left"), b.fixLost())
	case b.bond.Mode == modeLACP && b.bond.PartnerMAC == "":
		return warn("NoLACPPartner", "an LACP partner", b.name+" has no LACP partner",
			b.support(b.names(func(Link) bool { return true }), noLACP))
	case len(silent) > 0:
		return warn("MemberWithoutPartner", "an LACP partner on every member",
			"no LACP partner on "+strings.Join(silent, ", "), b.support(silent, noLACP))
	case len(apart) > 0:
		return warn("AggregatorsDiffer", "all members in one aggregator",
			strings.Join(apart, ", ")+" of "+b.name+" is in an aggregator of its own, so it carries nothing",
			b.support(apart, "another switch than that of the other members is behind"))
	default:
		return ok(b.String())
	}
}

// noLACP is what the switch does where a bond of this mode has no partner.
const noLACP = "no LACP comes from the switch to"

// support names the members that a person at phoenixNAP has to look at.
func (b bondState) support(members []string, what string) []Fix {
	return anyTool("contact phoenixNAP support: "+what+" "+strings.Join(members, ", "), "cat /proc/net/bonding/"+b.name)
}

// fixLost: one that a person set down needs no support.
func (b bondState) fixLost() []Fix {
	if len(b.members) == 0 {
		return anyTool(noCarrierNote(b), "cat /proc/net/bonding/"+b.name)
	}
	var fixes []Fix
	if lost := slices.DeleteFunc(b.down(), b.isSetDown); len(lost) > 0 {
		fixes = b.support(lost, "there is no working link on")
	}
	return append(fixes, b.setUp()...)
}

func (b bondState) isSetDown(member string) bool {
	return slices.Contains(b.names(func(l Link) bool { return !l.Up }), member)
}

// setUp sets up the members that a person set down.
func (b bondState) setUp() []Fix {
	var commands []string
	for _, name := range b.names(func(l Link) bool { return !l.Up }) {
		commands = append(commands, "ip link set "+name+" up")
	}
	if len(commands) == 0 {
		return nil
	}
	return []Fix{fix(IPRoute2, volatile, commands...)}
}

// fixNoCarrier shows where a carrier gets lost. No command restores one: the link is up already.
func fixNoCarrier(v view) []Fix {
	u := v.trunk
	if u.Bond == nil {
		return anyTool(fmt.Sprintf("check the cable and the switch port of %s; without a link there, contact "+
			"phoenixNAP support", u.Name), "ip -br link show "+u.Name, "ethtool "+u.Name)
	}
	commands := []string{"ip -br link show master " + u.Name}
	b := v.bondOf(*u)
	for _, l := range b.members {
		commands = append(commands, "ethtool "+l.Name)
	}
	return append(anyTool(noCarrierNote(b), append(commands, "cat /proc/net/bonding/"+u.Name)...), b.setUp()...)
}

func noCarrierNote(b bondState) string {
	names := b.names(func(Link) bool { return true })
	if len(names) == 0 {
		return b.name + " has no members: add its ports in the configuration of the machine's network"
	}
	return fmt.Sprintf("check the cable and the switch port of each member of %s (%s); for a member that is up and "+
		"has no link, contact phoenixNAP support", b.name, strings.Join(names, ", "))
}

// fixBondMode: the kernel changes the mode only without members, so whoever works over the bond needs another way in.
// networkd, which netplan configures, too, sets the mode only when it creates the bond.
func fixBondMode(b bondState) []Fix {
	const note = "the bond restarts: do this from the remote console, not over a connection that uses it"
	const reboot = "systemctl reboot"
	const atBoot = "networkd sets the mode when it creates the bond, so the machine restarts: drain the node first"
	return []Fix{
		fix(Netplan, atBoot, fmt.Sprintf("netplan set bonds.%s.parameters.mode=%s", b.name, modeLACP), reboot),
		fix(NetworkManager, note, changeProfile(b.name, "+bond.options mode="+modeLACP)),
		fix(Ifupdown, "a section of "+b.name+" without the line bond-mode needs one; "+note,
			inSections(b.name, "bond-mode", modeLACP), "systemctl restart networking"),
		fix(Networkd, atBoot,
			eachDeviceFile(b.name, "", `printf '[Bond]\nMode=`+modeLACP+`\n' > "$f.d/90-phoenixnap-mode.conf"`), reboot),
		fix(IPRoute2, joinedNotes(note, volatile), b.changeMode()...),
	}
}

// changeMode are the commands that change the mode of a bond. The routes over it and its VLAN interfaces, which go when
// it is down, are put back.
func (b bondState) changeMode() []string {
	routes := "/run/" + b.name + ".routes"
	commands := []string{"ip route save table all > " + routes, "ip link set " + b.name + " down"}
	for _, l := range b.members {
		commands = append(commands, "ip link set "+l.Name+" nomaster")
	}
	commands = append(commands, "ip link set "+b.name+" type bond mode "+modeLACP)
	for _, l := range b.members {
		commands = append(commands, "ip link set "+l.Name+" master "+b.name)
	}
	return append(commands, "ip link set "+b.name+" up", "ip route restore < "+routes)
}

// eachDeviceFile does something with the drop-in directory "$f.d" of the .netdev file by which networkd makes a link,
// but not of the file that is to be left out.
func eachDeviceFile(link, but, do string) string {
	var files []string
	for _, directory := range []string{"/etc", "/run", "/usr/lib"} {
		files = append(files, directory+"/systemd/network/*.netdev")
	}
	return fmt.Sprintf(`grep -lsx 'Name=%s' %s | sed '%ss|.*/|%s|' | %s`, link, strings.Join(files, " "),
		leftOut(but), networkdDirectory, eachDropIn(do))
}
