//go:build linux

package returnpath

import (
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/listing"
)

// listed is everything that the holder's network consists of.
func (h *harness) listed() []string {
	h.T.Helper()
	var all []string
	for _, command := range listing.Commands(publicLink) {
		all = append(all, listing.Lines(command, h.Run(holder, command...), publicLink)...)
	}
	// Some settings cannot be read, such as stable_secret.
	const settings = "cd /proc/sys/net && grep -s '' ipv[46]/conf/all/* ipv[46]/conf/" + publicLink + "/*; true"
	return append(all, strings.Split(h.Run(holder, "busybox", "sh", "-c", settings), "\n")...)
}
