package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/release"
)

// registryChart is the chart where Helm pulls it, by the name that Docker Hub's registry has on the network.
const registryChart = "oci://registry-1." + release.Registry + "/" + release.Chart

// download is the address of a file of a release: version and name.
var download = regexp.MustCompile(regexp.QuoteMeta(release.Downloads) + `([^/\s]+)/([\w.-]+)`)

// nextVersion is the version that the manifests name, which is that of the release that this tree becomes.
func nextVersion(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`newTag: (v\S+)`).FindStringSubmatch(read(t, "deploy/base/kustomization.yaml"))
	if match == nil {
		t.Fatal("deploy/base names no version")
	}
	return match[1]
}

// manifests are those of a release by their names on GitHub, with the files of the tree that they are made of.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	files, err := release.Manifests(root)
	must(t, err)
	return files
}

// TestDownloadsAreOfARelease: every page names files that a release has on GitHub, of the version of the manifests.
func TestDownloadsAreOfARelease(t *testing.T) {
	files := manifests(t)
	files[release.PluginManifest] = ""
	found := 0
	for _, page := range pages(t) {
		for _, match := range download.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if _, ok := files[match[2]]; !ok || match[1] != nextVersion(t) {
				t.Errorf("%s: a release %s has no file %s on GitHub", page, match[1], match[2])
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d downloads found; the pattern is out of date", found)
	}
}

// fromRelease puts the files of the tree in the place of the manifests of a release, which differ only in how they name
// images, or says which one a release does not have.
func fromRelease(t *testing.T, args []string) (local []string, problem string) {
	t.Helper()
	local = slices.Clone(args)
	for i, arg := range args {
		match := download.FindStringSubmatch(arg)
		if match == nil {
			continue
		}
		file, ok := manifests(t)[match[2]]
		if !ok || match[1] != nextVersion(t) {
			return nil, "no release has the manifest " + arg
		}
		// kubectl runs in the root.
		local[i] = strings.TrimPrefix(file, root+"/")
	}
	return local, ""
}

// fromRegistry puts the chart of the tree in the place of the published one, which differs only in versions and images,
// or says why no release publishes that one.
func fromRegistry(t *testing.T, args []string) (local []string, problem string) {
	t.Helper()
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "oci://") })
	if at < 0 {
		return args, ""
	}
	if args[at] != registryChart {
		return nil, "no release publishes the chart " + args[at]
	}
	local = slices.Clone(args)
	local[at] = deploy.Chart
	for i, arg := range local {
		version, ok := strings.CutPrefix(arg, "--version=")
		if arg == "--version" && i+1 < len(local) {
			version = local[i+1]
			ok = true
		}
		if ok && "v"+version != nextVersion(t) {
			return nil, "the chart has the version " + nextVersion(t)[1:] + ", not " + version
		}
	}
	return local, ""
}
