//go:build linux

package returnpath

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/kernel/listing"
)

// settle is how long the kernel, kube-proxy and the agent may take to finish what they do by themselves.
const settle = time.Minute

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

// settled waits until the same is listed twice, without an IPv6 address that the kernel still checks.
func (h *harness) settled() []string {
	h.T.Helper()
	for late := time.Now().Add(settle); ; {
		before := h.listed()
		time.Sleep(2 * time.Second)
		tentative := slices.ContainsFunc(before, func(line string) bool { return strings.Contains(line, " tentative") })
		if !tentative && slices.Equal(before, h.listed()) {
			return before
		}
		if time.Now().After(late) {
			h.T.Fatal("the network does not settle")
		}
	}
}

// waitForListed waits until everything is listed as before a disturbance.
func (h *harness) waitForListed(disturbance string, before []string) {
	h.T.Helper()
	for late := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		after := h.listed()
		if slices.Equal(before, after) {
			return
		}
		if time.Now().After(late) {
			h.T.Errorf("after %s not everything is listed as before (-before +after):\n%s", disturbance,
				cmp.Diff(before, after))
			return
		}
	}
}
