//go:build linux

package netstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// maxDumps bounds the attempts at a dump that a change interrupted.
	maxDumps = 5
	// dumpPause lets the change that interrupted a dump finish.
	dumpPause = 10 * time.Millisecond
)

// Reader reads the network namespace of the calling process.
type Reader struct {
	// SysctlRoot is the directory of the kernel's settings, normally /proc/sys.
	SysctlRoot string
	// FileRoot is the root of the machine's configuration files, normally "/".
	FileRoot string

	cache       tableCache
	machineOnce sync.Once
	machine     check.Machine
}

// NewReader returns a reader of the running machine.
func NewReader() *Reader { return &Reader{SysctlRoot: "/proc/sys", FileRoot: "/"} }

// Read takes a snapshot of links, addresses, rules, routes and settings. ARP answers and route look-ups are left to
// the caller. While Watch runs, links, addresses, rules and routes may be up to half a minute old if the kernel has
// reported no change since.
func (r *Reader) Read(ctx context.Context) (check.Snapshot, error) {
	t, err := r.cache.read(ctx)
	if err != nil {
		return check.Snapshot{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return check.Snapshot{}, fmt.Errorf("read the hostname: %w", err)
	}
	s := check.Snapshot{
		Hostname: hostname, Links: t.links, Addresses: t.addresses, Rules: t.rules, Tables: t.routes,
		Programs: t.programs, Renderer: r.renderer(), Machine: r.readMachine(),
	}
	r.readSettings(&s)
	return s, nil
}

// Dump repeats a dump that was interrupted, because its result may lack entries.
func Dump[T any](ctx context.Context, list func() (T, error)) (none T, err error) {
	for range maxDumps {
		var values T
		values, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return values, err
		}
		if !loop.Sleep(ctx, dumpPause) {
			return none, ctx.Err()
		}
	}
	return none, err
}

const (
	dmi          = "sys/class/dmi/id/"
	instanceData = "run/cloud-init/instance-data.json"
	instanceID   = "var/lib/cloud/data/instance-id"
	// maxFile bounds what is read from one file: all of them are short.
	maxFile = 1 << 20
)

// serverID is the form of a phoenixNAP server ID (a MongoDB ObjectID).
var serverID = regexp.MustCompile(`^[0-9a-f]{24}$`)

// readMachine reads the data of the firmware and cloud-init once: it does not change while the machine runs.
// Unreadable values stay empty: a container may not see these files, and nothing depends only on them.
func (r *Reader) readMachine() check.Machine {
	r.machineOnce.Do(func() {
		m := check.Machine{
			Product: r.line(dmi + "product_name"),
			Serial:  r.line(dmi + "product_serial"),
			UUID:    r.line(dmi + "product_uuid"),
		}
		m.InstanceID, m.LocalHostname = r.cloudInit()
		if m.InstanceID == "" {
			m.InstanceID = r.line(instanceID)
		}
		for _, place := range []struct{ name, value string }{
			{"cloud-init's instance ID", m.InstanceID}, {"the firmware's serial number", m.Serial},
			{"the firmware's UUID", m.UUID},
		} {
			if id := strings.ToLower(place.value); m.ServerID == "" && serverID.MatchString(id) {
				m.ServerID = id
				m.ServerIDFrom = place.name
			}
		}
		r.machine = m
	})
	return r.machine
}

// cloudInit reads the standardised keys of cloud-init's instance data.
func (r *Reader) cloudInit() (id, hostname string) {
	var data struct {
		V1 struct {
			InstanceID    string `json:"instance_id"`
			LocalHostname string `json:"local_hostname"`
		} `json:"v1"`
	}
	if json.Unmarshal(r.content(instanceData), &data) != nil {
		return "", ""
	}
	return data.V1.InstanceID, data.V1.LocalHostname
}

func (r *Reader) line(path string) string {
	first, _, _ := strings.Cut(string(r.content(path)), "\n")
	return strings.TrimSpace(first)
}

func (r *Reader) content(path string) []byte {
	full := filepath.Join(r.FileRoot, filepath.FromSlash(path))
	info, err := os.Stat(full)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil
	}
	raw, err := os.ReadFile(full)
	if err != nil {
		return nil
	}
	return raw
}

// readSettings reads the settings of "all", of VLAN interfaces and of the links below them: a node may have hundreds
// of pod interfaces, and theirs do not matter here. A setting that cannot be read is recorded, and its interface left
// out.
func (r *Reader) readSettings(s *check.Snapshot) {
	s.Settings = map[string]check.Settings{}
	for _, name := range settingNames(s.Links) {
		settings, err := r.settings(name)
		if err != nil {
			s.Unread = append(s.Unread, err.Error())
			continue
		}
		s.Settings[name] = settings
	}
	forward, err := r.setting("net/ipv4/ip_forward")
	if err != nil {
		s.Unread = append(s.Unread, err.Error())
	}
	s.IPForward = forward == 1
	reroute, err := r.setting("net/ipv4/vs/snat_reroute")
	s.IPVSReroute = err == nil && reroute == 1
}

// settingNames lists "all" and the interfaces whose settings are read.
func settingNames(links []check.Link) []string {
	names := []string{"all"}
	below := map[int]bool{}
	for _, l := range links {
		if l.VLAN != nil {
			names = append(names, l.Name)
			below[l.Parent] = true
		}
	}
	for _, l := range links {
		if l.Index != 0 && l.VLAN == nil && below[l.Index] {
			names = append(names, l.Name)
		}
	}
	return names
}

func (r *Reader) settings(name string) (check.Settings, error) {
	s := check.Settings{}
	for _, key := range check.SettingNames() {
		value, err := r.setting("net/ipv4/conf/" + name + "/" + key)
		if err != nil {
			return nil, err
		}
		s[key] = value
	}
	return s, nil
}

// setting reads one file. The path has only slashes: an interface name may contain dots.
func (r *Reader) setting(key string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(r.SysctlRoot, filepath.FromSlash(key)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return number, nil
}

// renderer guesses which tool configures the machine's network, from its configuration files.
func (r *Reader) renderer() check.Tool {
	for _, trace := range []struct {
		pattern string
		tool    check.Tool
	}{
		{"etc/netplan/*.yaml", check.Netplan},
		{"etc/NetworkManager/system-connections/*", check.NetworkManager},
		{"etc/sysconfig/network-scripts/ifcfg-*", check.NetworkManager},
		{"etc/systemd/network/*.network", check.Networkd},
		{"etc/network/interfaces", check.Ifupdown},
	} {
		if found, err := filepath.Glob(filepath.Join(r.FileRoot, trace.pattern)); err == nil && len(found) > 0 {
			return trace.tool
		}
	}
	return ""
}
