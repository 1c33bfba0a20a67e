// Package ownership defines how a managing agent marks, and after a crash recognizes, what it makes and changes.
package ownership

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Owner starts the agent's part of the alias of a link (IFLA_IFALIAS).
const Owner = "phoenixnap-agent"

// Protocol marks routes (RTA_PROTOCOL) and rules (FRA_PROTOCOL) of the agent. Neither the kernel
// (include/uapi/linux/rtnetlink.h) nor FRR, Cilium, Calico or kube-vip use this number.
const Protocol = 173

// maxAlias is the longest alias that the kernel takes, in bytes (IFALIASZ less the final zero).
const maxAlias = 255

// BirthGroup is the group (IFLA_GROUP) in which the agent makes a link, and by which it recognizes the link until its
// first record: no kernel accepts an alias in the request that makes a link. Others may use the number, see Read.
const BirthGroup = 173

// Record is what the agent did to a link. It is stored in the link's alias, so it is deleted with the link, survives
// the agent, and needs no file. It is written before the change: it may list more than was done, never less.
type Record struct {
	// Made reports whether the agent made the link; otherwise it adopted it.
	Made bool
	// Down reports whether the link was down when it was adopted.
	Down bool
	// Before are the values that settings of an adopted link had.
	Before Settings
	// Addresses are those that the agent put on the link.
	Addresses []netip.Prefix
	// Alias is the text that a person had given an adopted link.
	Alias string
}

// separator is between a person's alias and the record.
const separator = " | "

// ParseRecord reads the record in an alias. ok is false when there is none.
func ParseRecord(alias string) (r Record, ok bool, err error) {
	at := strings.LastIndex(alias, Owner+" ")
	switch {
	case at < 0:
		return Record{}, false, nil
	case at > 0 && !strings.HasSuffix(alias[:at], separator):
		return Record{}, false, nil
	case at > 0:
		r.Alias = strings.TrimSuffix(alias[:at], separator)
	}
	words := strings.Fields(alias[at+len(Owner):])
	if len(words) == 0 || words[0] != "made" && words[0] != "adopted" {
		return Record{}, false, nil
	}
	r.Made = words[0] == "made"
	for _, word := range words[1:] {
		if err := r.read(word); err != nil {
			return Record{}, true, fmt.Errorf("alias %q: %w", alias, err)
		}
	}
	return r, true, nil
}

// read takes one word: "down", "ip=<prefix>", "<setting>=<value>" or "packed=<settings and addresses>".
func (r *Record) read(word string) error {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "down":
		r.Down = true
		return nil
	case "ip":
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
		r.Addresses = append(r.Addresses, prefix)
		return nil
	case packedWord:
		if err := r.unpack(value); err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
		return nil
	}
	setting, known := settingNamed(key)
	number, err := strconv.Atoi(value)
	if !known || err != nil {
		return fmt.Errorf("%q is no setting and its value", word)
	}
	r.before(setting, number)
	return nil
}

// before records the value that a setting had.
func (r *Record) before(setting Setting, value int) {
	if r.Before == nil {
		r.Before = Settings{}
	}
	r.Before[setting] = value
}

// Encode writes the alias of a link with this record: as text that a person can read where there is room for it, else
// packed, which has room for all addresses of all blocks that a network can have, and as many that go.
func (r Record) Encode() (string, error) {
	alias := r.text()
	if len(alias) <= maxAlias {
		return alias, nil
	}
	if word, ok := r.pack(); ok {
		alias = r.behindAlias(append(r.words(), word))
	}
	if len(alias) <= maxAlias {
		return alias, nil
	}
	length := len(alias) - len(r.behindAlias(nil))
	if room := maxAlias - length - len(separator); room > 0 && r.Alias != "" {
		return "", fmt.Errorf("the alias %q leaves no room for the record of what the agent changes: shorten it to %d "+
			"bytes, and keep what the agent has written behind it", r.Alias, room)
	}
	return "", fmt.Errorf("the record of what the agent changes takes %d bytes for %d addresses, and an interface has "+
		"room for %d: remove addresses from the server in the public network", length, len(r.Addresses), maxAlias)
}

// words are those with which a record begins.
func (r Record) words() []string {
	words := []string{Owner, "adopted"}
	if r.Made {
		words[1] = "made"
	}
	if r.Down {
		words = append(words, "down")
	}
	return words
}

// text is the alias in which each setting and each address is a word of its own.
func (r Record) text() string {
	words := r.words()
	if len(r.Before) > 0 {
		words = append(words, r.Before.String())
	}
	for _, prefix := range r.Addresses {
		words = append(words, "ip="+prefix.String())
	}
	return r.behindAlias(words)
}

// behindAlias puts the words of a record behind the alias that a person gave the link.
func (r Record) behindAlias(words []string) string {
	record := strings.Join(words, " ")
	if r.Alias == "" {
		return record
	}
	return r.Alias + separator + record
}

// Link is what shows whether the agent made a network interface.
type Link struct {
	Name, Alias string
	Group       int
	// Tagged reports that it is an 802.1Q interface on a link of this network namespace that is none itself.
	Tagged bool
	// Port reports that it belongs to a bridge or bond, Up that it was set up, Addressed that it has an IPv4 address.
	Port, Up, Addressed bool
}

// Read reads the record of a link. ok is false when the agent never touched the link. The agent makes only 802.1Q
// interfaces, so neither its words nor its group on another link say that it made it.
func Read(l Link) (r Record, ok bool, err error) {
	r, ok, err = ParseRecord(l.Alias)
	switch {
	case err != nil:
		return r, ok, err
	case ok && r.Made && !l.Tagged:
		return Record{}, false, fmt.Errorf("alias %q: the agent makes only 802.1Q interfaces, and %s is none: remove "+
			"the alias", l.Alias, l.Name)
	case !ok && l.newborn():
		return Record{Made: true}, true, nil
	default:
		return r, ok, nil
	}
}

// newborn reports whether the agent was killed between making the link and its first record: before that it neither
// sets the link up nor gives it an address.
func (l Link) newborn() bool {
	return l.Group == BirthGroup && l.Alias == "" && l.Tagged && !l.Port && !l.Up && !l.Addressed
}

// Empty reports whether an adopted link was not changed.
func (r Record) Empty() bool {
	return !r.Made && !r.Down && len(r.Before) == 0 && len(r.Addresses) == 0
}

// Owns reports whether the agent added prefix to the link.
func (r Record) Owns(prefix netip.Prefix) bool { return slices.Contains(r.Addresses, prefix) }

// Changes records the values of settings before they are changed; a value that is already recorded stays.
func (r *Record) Changes(before Settings) {
	for key, value := range before {
		if _, noted := r.Before[key]; noted {
			continue
		}
		r.before(key, value)
	}
}

// Forget removes addresses from the record.
func (r *Record) Forget(addresses []netip.Prefix) {
	r.Addresses = slices.DeleteFunc(r.Addresses, func(p netip.Prefix) bool { return slices.Contains(addresses, p) })
}

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
