package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Setting is an IPv4 setting of an interface by its number in the kernel's interface (IPV4_DEVCONF_* of
// include/uapi/linux/ip.h); the kernel's files show the same under net/ipv4/conf/<interface>.
type Setting uint16

// The settings that affect traffic of the public network.
const (
	ProxyARP           Setting = 3
	RPFilter           Setting = 8
	ARPFilter          Setting = 13
	ARPAnnounce        Setting = 18
	ARPIgnore          Setting = 19
	PromoteSecondaries Setting = 20
	AcceptLocal        Setting = 23
	SrcValidMark       Setting = 24
)

var settingNames = map[Setting]string{
	ProxyARP: "proxy_arp", RPFilter: "rp_filter", ARPFilter: "arp_filter", ARPAnnounce: "arp_announce",
	ARPIgnore:          "arp_ignore",
	PromoteSecondaries: "promote_secondaries", AcceptLocal: "accept_local", SrcValidMark: "src_valid_mark",
}

// String is the name of the setting's file.
func (s Setting) String() string {
	if name, known := settingNames[s]; known {
		return name
	}
	return fmt.Sprintf("setting-%d", uint16(s))
}

func settingNamed(name string) (Setting, bool) {
	for s, n := range settingNames {
		if n == name {
			return s, true
		}
	}
	return 0, false
}

// Settings are values of settings.
type Settings map[Setting]int

// String lists the settings in the order of their numbers: "proxy_arp=0 rp_filter=2".
func (s Settings) String() string {
	parts := make([]string, 0, len(s))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s=%d", key, s[key]))
	}
	return strings.Join(parts, " ")
}

// Missing are the values of wanted that s does not have.
func (s Settings) Missing(wanted Settings) Settings {
	missing := Settings{}
	for key, value := range wanted {
		if has, known := s[key]; !known || has != value {
			missing[key] = value
		}
	}
	return missing
}
