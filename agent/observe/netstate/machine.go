//go:build linux

package netstate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

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
