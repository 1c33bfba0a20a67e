package contract

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	providerIDPrefix = ProviderName + "://"
	// capiPrefix is the prefix that the Cluster API provider of phoenixNAP writes.
	capiPrefix = "bmc://servers/"
)

// serverIDPattern is the form of a server ID: 24 hexadecimal digits (phoenixNAP BMC API, GET /servers).
var serverIDPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

// ProviderID returns the provider ID of a server, phoenixnap://<server-id>. It must not change: existing Nodes would
// not be recognized any more.
func ProviderID(serverID string) string { return providerIDPrefix + serverID }

// ParseProviderID returns the server ID of a provider ID. It accepts phoenixnap://<id>, the bare ID and
// bmc://servers/<id>; anything else is an error, because a Node of another provider is never "gone".
func ParseProviderID(providerID string) (string, error) {
	id := providerID
	for _, prefix := range []string{providerIDPrefix, capiPrefix} {
		if rest, found := strings.CutPrefix(providerID, prefix); found {
			id = rest
			break
		}
	}
	if !serverIDPattern.MatchString(id) {
		return "",
			fmt.Errorf("provider ID %q is not a phoenixNAP provider ID: want %s followed by 24 hexadecimal digits",
				providerID, providerIDPrefix)
	}
	return id, nil
}
