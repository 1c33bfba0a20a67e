package check

import (
	"fmt"
	"strings"
)

// profileOf is a shell command that sets u to the UUID of NetworkManager's profile of an interface, whatever its name:
// cloud-init calls that of bond0.100 "cloud-init bond0.100". Profiles in files come before those that NetworkManager
// holds in memory below /run, such as one that it made for an interface that it found.
func profileOf(name string) string {
	return fmt.Sprintf("u=$(nmcli -g UUID,FILENAME connection show | sort -t: -k2 | while IFS=: read -r u f; do "+
		"if [ \"$(nmcli -g connection.interface-name connection show $u)\" = %s ]; then echo $u; fi; done | head -n 1)",
		name)
}

// changeProfile changes settings of the profile of an interface and applies it, if there is one.
func changeProfile(name, settings string) string {
	return profileOf(name) + fmt.Sprintf(
		`; [ -z "$u" ] || { nmcli connection modify "$u" %s && nmcli connection up "$u"; }`, settings)
}

// networkManager changes settings in the profile of the VLAN interface and applies it. Where there is none, it makes a
// whole one first: then there is one afterwards in any case, and never a second. One that NetworkManager held in memory
// becomes a file by the change, and would not start by itself.
func (p plan) networkManager(note string, settings ...string) Fix {
	return fix(NetworkManager, note, profileOf(p.name)+fmt.Sprintf(
		`; [ "$u" ] || nmcli connection add type vlan con-name %[1]s ifname %[1]s dev %[2]s id %[3]d %[4]s; `+
			`nmcli connection modify "${u:-%[1]s}" connection.autoconnect yes %[5]s && `+
			`nmcli connection up "${u:-%[1]s}"`,
		p.name, p.uplink, p.id, p.profileAddress("ipv4.method disabled"), strings.Join(settings, " ")))
}

// profileAddress are the settings of a profile that give the interface the node's address; without is what they are
// where it is not known.
func (p plan) profileAddress(without string) string {
	if !p.address.IsValid() {
		return without
	}
	return fmt.Sprintf("ipv4.method manual ipv4.addresses %s", p.address)
}

// profileVLAN are the settings of a profile that make the interface as it has to be.
func (p plan) profileVLAN() string {
	settings := fmt.Sprintf("vlan.parent %s vlan.id %d %s", p.uplink, p.id, profileMTU)
	return strings.TrimSpace(settings + " " + p.profileAddress(""))
}

// profileMTU is the setting of a profile that makes frames as long as what passes on the way to the Internet.
var profileMTU = fmt.Sprintf("802-3-ethernet.mtu %d", internetMTU)
