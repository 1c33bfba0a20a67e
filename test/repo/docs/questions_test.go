package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// questions are what users ask first, by words of the question as the index has it, each with a page or a heading that
// answers it.
var questions = []struct{ words, answer string }{
	{"Service pending", "docs/guides/troubleshoot.md#a-service-stays-pending"},
	{"Node stay uninitialized", "docs/guides/troubleshoot.md#a-node-stays-uninitialized"},
	{"does it cost", "docs/explanation/cost.md"},
	{"keep an address", "docs/guides/services.md#a-block-that-outlives-the-service"},
	{"share one /29", "docs/guides/services.md#shared-blocks"},
	{"VLAN on Ubuntu", "docs/guides/network.md#ubuntu-netplan"},
	{"Rocky Linux", "docs/guides/network.md#rocky-linux-almalinux-rhel-oracle-linux-networkmanager"},
	{"or Debian", "docs/guides/network.md#debian-proxmox-ve-ifupdown"},
	{"behind a proxy", "docs/guides/install.md#proxies-and-firewalls"},
	{"hosts must be reachable", "docs/guides/install.md#proxies-and-firewalls"},
	{"RKE2, Talos", "docs/guides/install.md#2-the-cluster"},
	{"Cilium, MetalLB or a kube-vip", "docs/guides/other-load-balancers.md"},
	{"IPv6 or BGP", "docs/guides/network.md#ipv6-and-bgp"},
	{"node announces", "docs/guides/announcers.md#who-answers-for-an-address"},
	{"node dies", "docs/reference/service-changes.md#nodes-below-services"},
	{"rotate the credentials", "docs/guides/operate.md#credentials"},
	{"migrate from", "docs/guides/migrate.md"},
	{"uninstall without paying", "docs/guides/uninstall.md"},
}

// index is the page that lists the questions.
const index = "docs/README.md"

// TestQuestionsAreAnswered: each question stands in the index beside a link to its answer, and who begins at the top
// README gets there with two clicks.
func TestQuestionsAreAnswered(t *testing.T) {
	first := targets(t, "README.md", prose(read(t, "README.md")))
	if !slices.Contains(first, index) {
		t.Fatalf("README.md has no link to %s", index)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+\?) \| (.+) \|$`).FindAllStringSubmatch(read(t, index), -1)
	for _, q := range questions {
		at := slices.IndexFunc(rows, func(row []string) bool { return strings.Contains(row[1], q.words) })
		if at < 0 {
			t.Errorf("%s has no question with the words %q", index, q.words)
			continue
		}
		if !slices.Contains(targets(t, index, rows[at][2]), q.answer) {
			t.Errorf("%s: %s has no link to %s", index, rows[at][1], q.answer)
		}
	}
	for _, row := range rows {
		answers := targets(t, index, row[2])
		if !slices.ContainsFunc(answers, exists(t)) {
			t.Errorf("%s: %s has no answer among %q", index, row[1], answers)
		}
	}
}

// exists reports whether a page has a heading.
func exists(t *testing.T) func(target string) bool {
	t.Helper()
	all := pages(t)
	return func(target string) bool {
		page, heading, anchored := strings.Cut(target, "#")
		return slices.Contains(all, page) && (!anchored || anchors(read(t, page))[heading])
	}
}

// targets are the places that a text of a page links to: paths below the root, with their headings.
func targets(t *testing.T, page, text string) []string {
	t.Helper()
	var found []string
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		target := page
		if match[1] != "" {
			target = path.Join(path.Dir(page), match[1])
		}
		if match[2] != "" {
			target += "#" + match[2]
		}
		found = append(found, target)
	}
	return found
}
