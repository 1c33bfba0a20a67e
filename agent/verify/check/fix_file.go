package check

import (
	"fmt"
	"path"
	"slices"
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
	if len(remove) > 0 {
		// networkd keeps what it has read of an interface that it makes until it restarts, and netplan apply only
		// reloads it. It may not run: netplan configures NetworkManager, too.
		remove = append(slices.Clone(remove), "systemctl try-restart systemd-networkd")
	}
	return Fix{Tool: Netplan, File: file, Content: b.String(),
		Commands: slices.Concat(commands, remove, []string{"netplan apply"})}
}

// interfacesFile is a file of ifupdown. With source-directory, ifupdown reads only names without dots (interfaces(5)).
func interfacesFile(name, purpose string) string {
	return interfacesDirectory + strings.TrimSuffix("phoenixnap-"+strings.ReplaceAll(name, ".", "-")+"-"+purpose, "-")
}

func (p plan) rawDevice() string {
	return fmt.Sprintf("  vlan-raw-device %s\n  vlan-id %d\n", p.uplink, p.id)
}

// interfacesSection is a further section of the interface: ifupdown runs all that have its name, in the order in which
// it reads them. A script in if-up.d would not do, for ifupdown2 runs none by default. Its commands are run now, too,
// so that the interface need not restart; first runs before them. In the section one that fails does not stop the rest.
func (p plan) interfacesSection(purpose, first string, commands ...string) Fix {
	var content strings.Builder
	fmt.Fprintf(&content, "iface %s inet manual\n%s", p.name, p.rawDevice())
	for _, c := range commands {
		content.WriteString("  post-up " + strings.TrimSuffix(c, orPass) + orPass + "\n")
	}
	if first != "" {
		commands = slices.Insert(slices.Clone(commands), 0, first)
	}
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, purpose), Content: content.String(), Commands: commands}
}

// orPass lets a command fail, such as one that adds an existing rule.
const orPass = " || true"

// inSections changes an option of ifupdown in all sections of an interface that have it. There may be no file with
// further sections.
func inSections(name, option, value string) string {
	return fmt.Sprintf(`find /etc/network/interfaces %s -type f -exec `+
		`sed -i '/^iface %s /,/^iface /s/^\([[:space:]]*%s\)[[:space:]].*/\1 %s/' {} +`,
		interfacesDirectory, name, option, value)
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
	return fmt.Sprintf(`networkctl status %s | sed -n '%ss|^ *Network File: /.*/|%s|p' | %s`,
		link, leftOut(but), networkdDirectory, eachDropIn(do))
}

// leftOut is the command of sed that deletes the lines about a file.
func leftOut(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(`\|/%s$|d; `, name)
}

// eachDropIn does something with the directory "$f.d" of each file whose name it reads.
func eachDropIn(do string) string {
	return fmt.Sprintf(`while read -r f; do mkdir -p "$f.d" && %s; done`, do)
}

func fix(tool Tool, note string, commands ...string) Fix {
	return Fix{Tool: tool, Commands: commands, Note: note}
}

// anyTool is a fix that is the same whatever configures the network.
func anyTool(note string, commands ...string) []Fix { return []Fix{fix(AnyTool, note, commands...)} }

// perTool is one fix whose commands help at once; what lasts is left to the tool that configures the network.
func perTool(commands []string, note string) []Fix {
	with := func(tool Tool, apply ...string) Fix { return fix(tool, note, slices.Concat(commands, apply)...) }
	return []Fix{
		with(Netplan, "netplan apply"), with(NetworkManager, "nmcli connection reload"), with(Ifupdown),
		with(Networkd, "networkctl reload"), fix(IPRoute2, volatile, commands...),
	}
}
