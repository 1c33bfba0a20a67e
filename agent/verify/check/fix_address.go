package check

import (
	"fmt"
	"path"
	"slices"
)

// fixes writes the plan for every tool; remove are commands that run first, to remove what is wrong.
func (p plan) fixes(remove []string) []Fix {
	netplan := p.netplanFile(netplanMain, fmt.Sprintf("      mtu: %d\n", internetMTU), remove...)
	profile := p.networkManager("", p.profileVLAN())
	profile.Commands = slices.Concat(remove, profile.Commands)
	return slices.Concat([]Fix{netplan, profile, p.ifupdown(remove)}, p.networkd(remove),
		[]Fix{p.ipRoute2(remove)})
}

// ifupdown writes a section that stands beside one of a person, before or behind it: ifupdown runs all sections of an
// interface, and stops at the first command that fails, such as one that adds an existing address.
func (p plan) ifupdown(remove []string) Fix {
	address := ""
	note := ""
	if p.address.IsValid() {
		address = fmt.Sprintf("  post-up ifquery %[1]s | grep -Eqx 'address: %[2]s(/.*)?' || "+
			"ip address replace %[3]s dev %[1]s\n", p.name, p.address.Addr(), p.address)
		note = "the line post-up adds the address unless another section of " + p.name + " has it"
	}
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, ""),
		Content: fmt.Sprintf("auto %[1]s\niface %[1]s inet manual\n%[2]s  mtu %[3]d\n%[4]s", p.name, p.rawDevice(),
			internetMTU, address),
		Commands: slices.Concat(remove, restartInterface(p.name)), Note: note}
}

// restartInterface sets an interface up again by ifupdown. With --force, ifup would set up the link below, too, and the
// hook of ifenslave sets the members of a bond down then. ifdown needs the option where a person deleted the interface;
// that of ifupdown2 fails nevertheless where it did not set it up itself.
func restartInterface(name string) []string {
	return []string{"ifdown --force " + name + " || true", "ifup " + name}
}

func (p plan) networkd(remove []string) []Fix {
	var own []string
	apply := "networkctl reload"
	if len(remove) > 0 {
		// Of several .netdev files for one name networkd takes the first, by the order of their names, and it keeps
		// what it has read of them until it restarts.
		apply = "systemctl restart systemd-networkd"
		own = append(p.networkdAddress(), eachDeviceFile(p.name, "90-"+p.name+".netdev",
			fmt.Sprintf(`printf '[VLAN]\nId=%d\n' > "$f.d/90-phoenixnap-id.conf"`, p.id)))
	}
	device := fmt.Sprintf("[NetDev]\nName=%s\nKind=vlan\nMTUBytes=%d\n[VLAN]\nId=%d\n", p.name, internetMTU, p.id)
	network := fmt.Sprintf("[Match]\nName=%s\n", p.name)
	if p.address.IsValid() {
		network += fmt.Sprintf("[Network]\nAddress=%s\n", p.address)
	}
	uplink := eachNetworkFile(p.uplink, "",
		fmt.Sprintf(`printf '[Network]\nVLAN=%[1]s\n' > "$f.d/90-phoenixnap-%[1]s.conf"`, p.name))
	return []Fix{
		{Tool: Networkd, File: networkdDirectory + "90-" + p.name + ".netdev", Content: device},
		{Tool: Networkd, File: networkdFile(p.name), Content: network,
			// networkd makes a VLAN only where the link below asks for it (systemd.netdev(5), section [VLAN]). Reload
			// configures the uplink again by itself, for its file has changed.
			Commands: slices.Concat(own, remove, []string{uplink, apply}),
			Note: fmt.Sprintf("the .network file of %[1]s needs the line VLAN=%[2]s in its section [Network]: the "+
				"command adds it in a drop-in; networkd removes the addresses of %[1]s for a moment when it reads "+
				"that; if networkctl status %[1]s lists no such file, another tool configures %[1]s", p.uplink,
				p.name)},
	}
}

// networkdAddress puts the address beside the .network file of a person, by which networkd configures the interface in
// place of ours.
func (p plan) networkdAddress() []string {
	if !p.address.IsValid() {
		return nil
	}
	return []string{eachNetworkFile(p.name, path.Base(networkdFile(p.name)),
		fmt.Sprintf(`printf '[Network]\nAddress=%s\n' > "$f.d/90-phoenixnap-address.conf"`, p.address))}
}

func (p plan) ipRoute2(remove []string) Fix {
	commands := slices.Concat(remove, []string{
		fmt.Sprintf("ip link add link %s name %s type vlan id %d", p.uplink, p.name, p.id),
		fmt.Sprintf("ip link set %s mtu %d up", p.name, internetMTU)})
	if p.address.IsValid() {
		commands = append(commands, fmt.Sprintf("ip address add %s dev %s", p.address, p.name))
	}
	return fix(IPRoute2, volatile, commands...)
}

// fixLinkUp sets a link up, and lets its tool restore the addresses and routes that went with it. No tool sets up a
// link that it does not configure. ifupdown are its commands for that.
