//go:build linux

package ownership

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// inetConf is IFLA_INET_CONF (if_link.h): an array of all settings in answers, attributes by their numbers in requests.
const inetConf = 1

// ReadSettings returns the IPv4 settings of the link with that index, those of this package.
func ReadSettings(index int) (Settings, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(linkHeader(index))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, fmt.Errorf("read the settings of interface %d: %w", index, err)
	}
	if len(messages) != 1 || len(messages[0]) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("read the settings of interface %d: %d messages instead of one", index, len(messages))
	}
	raw, err := nested(messages[0][unix.SizeofIfInfomsg:], unix.IFLA_AF_SPEC, unix.AF_INET, inetConf)
	if err != nil {
		return nil, fmt.Errorf("read the settings of interface %d: %w", index, err)
	}
	return parseSettings(raw)
}

// nested follows a path of attributes and returns the value of the last one.
func nested(raw []byte, path ...uint16) ([]byte, error) {
	for _, wanted := range path {
		attributes, err := nl.ParseRouteAttr(raw)
		if err != nil {
			return nil, fmt.Errorf("attributes before %d: %w", wanted, err)
		}
		found := false
		for _, a := range attributes {
			if a.Attr.Type&nl.NLA_TYPE_MASK == wanted {
				raw = a.Value
				found = true
				break
			}
		}
		if !found {
			return nil, fmt.Errorf("no attribute %d: is IPv4 off on the interface?", wanted)
		}
	}
	return raw, nil
}

// parseSettings reads the kernel's array: the value of setting n is at index n-1, 32 bits each.
func parseSettings(raw []byte) (Settings, error) {
	values := Settings{}
	for setting := range settingNames {
		at := 4 * (int(setting) - 1)
		if at+4 > len(raw) {
			return nil, fmt.Errorf("the kernel does not know %s", setting)
		}
		value := int32(nl.NativeEndian().Uint32(raw[at : at+4])) //nolint:gosec // the kernel writes an int
		values[setting] = int(value)
	}
	return values, nil
}

// WriteSettings changes IPv4 settings of a link over netlink: that takes CAP_NET_ADMIN, and /proc/sys may be read-only.
func WriteSettings(index int, values Settings) error {
	specification := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := specification.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	for setting, value := range values {
		conf.AddRtAttr(int(setting), nl.Uint32Attr(uint32(int32(value)))) //nolint:gosec // the kernel reads an int
	}
	if err := setLink(index, specification); err != nil {
		return fmt.Errorf("set %s of interface %d: %w", values, index, err)
	}
	return nil
}

// setAlias changes the alias of a link. With leave the link also leaves BirthGroup.
func setAlias(index int, alias string, leave bool) error {
	attributes := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias))}
	if leave {
		attributes = append(attributes, nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(0)))
	}
	if err := setLink(index, attributes...); err != nil {
		return fmt.Errorf("set the alias %q of interface %d: %w", alias, index, err)
	}
	return nil
}

func setLink(index int, attributes ...*nl.RtAttr) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.AddData(linkHeader(index))
	for _, a := range attributes {
		request.AddData(a)
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func linkHeader(index int) *nl.IfInfomsg {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's numbers are of that size
	return header
}

// Gone reports whether err means that a link, an address, a route or a rule does not exist.
func Gone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) ||
		errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT)
}

// ReadLink is Read for a link of the running machine.
func ReadLink(link netlink.Link) (r Record, ok bool, err error) {
	a := link.Attrs()
	l := Link{Name: a.Name, Alias: a.Alias, Group: int(a.Group), Port: a.MasterIndex != 0,
		Up: a.RawFlags&unix.IFF_UP != 0}
	v, is := link.(*netlink.Vlan)
	if is && v.VlanProtocol == netlink.VLAN_PROTOCOL_8021Q && a.NetNsID < 0 {
		below, err := netlink.LinkByIndex(a.ParentIndex)
		if err != nil && !Gone(err) {
			return Record{}, false, fmt.Errorf("read the link below %s: %w", a.Name, err)
		}
		l.Tagged = err == nil && below.Type() != link.Type()
	}
	if l.newborn() {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return Record{}, false, fmt.Errorf("read the addresses of %s: %w", a.Name, err)
		}
		l.Addressed = len(addresses) > 0
	}
	return Read(l)
}

// Journal writes the records of links. All reconcilers of a process share one: a record has several writers.
type Journal struct {
	mu sync.Mutex
}

// Update reads the record of a link, calls change, and writes the record when it changed. A link without a record
// counts as adopted from then on; one whose record became empty is restored to what a person had.
func (j *Journal) Update(index int, change func(*Record)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read the record of interface %d: %w", index, err)
	}
	alias := link.Attrs().Alias
	group := int(link.Attrs().Group)
	record, has, err := ReadLink(link)
	if err != nil {
		return fmt.Errorf("read the record of %s: %w", link.Attrs().Name, err)
	}
	if !has {
		record.Alias = alias
	}
	change(&record)
	wanted := record.Alias
	if !record.Empty() {
		if wanted, err = record.Encode(); err != nil {
			return fmt.Errorf("%s: %w", link.Attrs().Name, err)
		}
	}
	if wanted == alias {
		return nil
	}
	// Without an alias in that group, a link that a person made would next count as one that the agent has just made.
	return setAlias(index, wanted, group == BirthGroup && (record.Made || wanted == ""))
}

// Keep enforces settings of a link and reports whether any changed. It records those before of a link it did not make.
func (j *Journal) Keep(index int, wanted Settings) (changed bool, err error) {
	has, err := ReadSettings(index)
	if err != nil {
		return false, err
	}
	missing := has.Missing(wanted)
	if len(missing) == 0 {
		return false, nil
	}
	before := Settings{}
	for key := range missing {
		before[key] = has[key]
	}
	if err := j.Update(index, func(r *Record) {
		if !r.Made {
			r.Changes(before)
		}
	}); err != nil {
		return false, err
	}
	return true, WriteSettings(index, missing)
}

// Restore gives a setting of a link the value in its record, and removes it from the record.
func (j *Journal) Restore(index int, setting Setting) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read the record of interface %d: %w", index, err)
	}
	record, has, err := ParseRecord(link.Attrs().Alias)
	value, noted := record.Before[setting]
	if err != nil || !has || !noted {
		return err
	}
	if err := WriteSettings(index, Settings{setting: value}); err != nil {
		return err
	}
	return j.Update(index, func(r *Record) { delete(r.Before, setting) })
}
