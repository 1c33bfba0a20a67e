package check

import (
	"fmt"
	"path"
	"strings"
)

// Each file that a fix writes is whole and written by nothing else: a person follows several findings, in any order,
// and what one of them wrote has to stand after the next. Where a tool reads one file for an interface, further
// settings go into a drop-in or a section of their own.
const (
	netplanDirectory  = "/etc/netplan/"
	networkdDirectory = "/etc/systemd/network/"
	// interfacesDirectory is where ifupdown of Debian reads sections from.
	interfacesDirectory = "/etc/network/interfaces.d/"
	// netplanMain is the name of the file that makes the VLAN interface; others come behind it.
	netplanMain = "90-phoenixnap-%s.yaml"
)

// planHere is the plan of an interface that exists: with the address that it carries where the membership lists none.
func planHere(v view) plan {
	p := planOf(v)
	if source, found := v.source(); found && !p.address.IsValid() {
		p.address = v.prefixOf(source)
	}
	return p
}

// netplanFile is a file of netplan with settings of the VLAN interface. netplan merges files by their keys, in the
// order of their names, and refuses an interface that no file gives an ID and a link; then it generates nothing at all,
// the bond included. So each file repeats what makes the interface complete, the address too: an interface that a
// person made by hand would lose it. name is the file's, with %s for the interface.
func (p plan) netplanFile(name, settings string, remove ...string) Fix {
	var b strings.Builder
	fmt.Fprintf(&b, "network:\n  version: 2\n  vlans:\n    %s:\n      id: %d\n      link: %s\n", p.name, p.id, p.uplink)
	address := ""
	if p.address.IsValid() {
		address = fmt.Sprintf("      addresses: [%s]\n", p.address)
	}
	if name == netplanMain {
		b.WriteString(settings + address)
	} else {
		b.WriteString(address + settings)
	}
	file := netplanDirectory + fmt.Sprintf(name, p.name)
	commands := []string{"chmod 600 " + file, fmt.Sprintf("netplan generate || mv %[1]s %[1]s.rejected", file)}
	return Fix{Tool: Netplan, File: file, Content: b.String(),
		Commands: append(append(commands, remove...), "netplan apply")}
}

// interfacesFile is a file of ifupdown. With source-directory, ifupdown reads only names without dots (interfaces(5)).
func interfacesFile(name, purpose string) string {
	file := "phoenixnap-" + strings.ReplaceAll(name, ".", "-")
	if purpose != "" {
		file += "-" + purpose
	}
	return interfacesDirectory + file
}

func (p plan) rawDevice() string {
	return fmt.Sprintf("  vlan-raw-device %s\n  vlan-id %d\n", p.uplink, p.id)
}

// interfacesSection is a further section of the interface: ifupdown runs all that have its name, in the order in which
// it reads them. A script in if-up.d would not do, for ifupdown2 runs none by default.
func (p plan) interfacesSection(purpose, lines string) Fix {
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, purpose),
		Content:  fmt.Sprintf("iface %s inet manual\n%s%s", p.name, p.rawDevice(), lines),
		Commands: []string{"ifup --force " + p.name}}
}

// networkdFile is the .network file that makes the VLAN interface.
func networkdFile(name string) string { return networkdDirectory + "90-" + name + ".network" }

// networkdDropIn is a drop-in of the VLAN interface's .network file (systemd.network(5)). It stands beside the file of
// fixVLAN; where another file configures the interface, the command puts it beside that one, too.
func (p plan) networkdDropIn(purpose, content string) Fix {
	main := networkdFile(p.name)
	file := main + ".d/90-phoenixnap-" + purpose + ".conf"
	link := eachNetworkFile(p.name, path.Base(main), fmt.Sprintf(`ln -sf %s "$f.d/"`, file))
	return Fix{Tool: Networkd, File: file, Content: content,
		Commands: []string{link, "networkctl reload", "networkctl reconfigure " + p.name}}
}

// eachNetworkFile does something with the drop-in directory "$f.d" of the .network file by which networkd configures a
// link, wherever that file is: drop-ins below /etc belong to files below /run and /usr, too. It does nothing where
// there is no such file, or where it is the one to be left out.
func eachNetworkFile(link, but, do string) string {
	if but != "" {
		but = fmt.Sprintf(`\|/%s$|d; `, but)
	}
	return fmt.Sprintf(`networkctl status %s | sed -n '%ss|^ *Network File: /.*/|%s|p' | %s`,
		link, but, networkdDirectory, eachDropIn(do))
}

// eachDropIn does something with the directory "$f.d" of each file whose name it reads.
func eachDropIn(do string) string {
	return fmt.Sprintf(`while read -r f; do mkdir -p "$f.d" && %s; done`, do)
}

// connectionNote: a connection has a name of its own, which a person may have chosen.
func connectionNote(name string) string {
	return fmt.Sprintf("if the connection of %[1]s has another name, use that name in place of %[1]s "+
		"(nmcli -f NAME,DEVICE connection show)", name)
}
