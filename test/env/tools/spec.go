package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// spec defines how one program is built from a nested module.
type spec struct {
	// dir is the directory of the nested module, below the source tree.
	dir string
	// module is the module whose required version is the program's version.
	module string
	// pkg is the main package, or one whose tests are the program.
	pkg string
	// tests reports that the program is the tests of pkg (go test -c).
	tests bool
	// stamp is the variable that the linker sets to the program's version; empty for none.
	stamp string
	// tags are the build tags, separated by commas.
	tags string
	// cgo reports that the program has parts in C, which a compiler of the system translates.
	cgo bool
	// minutes is about how long the first build takes on two cores.
	minutes int
	// asset reports that the program is looked for in $KUBEBUILDER_ASSETS first.
	asset asset
}

// asset defines what $KUBEBUILDER_ASSETS means for a program.
type asset int

const (
	notAsset asset = iota
	// mayBeAsset programs are taken from there if they are there.
	mayBeAsset
	// mustBeAsset programs are a fixed part of such a directory (envtest of controller-runtime).
	mustBeAsset
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS"

	apiServer        = "kube-apiserver"
	kubernetesDir    = "test/env/tools/kubernetes"
	kubernetesModule = "k8s.io/kubernetes"
	// nodeDir pins the Kubernetes programs that only a cluster with real nodes has.
	nodeDir    = kubernetesDir + "/node"
	kubeadmDir = kubernetesDir + "/kubeadm"
	// e2eDir pins what judges a cluster.
	e2eDir = kubernetesDir + "/e2e"

	promtool         = "promtool"
	prometheusModule = "github.com/prometheus/prometheus"

	helmModule = "helm.sh/helm/v3"

	flannelDir    = "test/env/tools/flannel"
	flannelModule = "github.com/flannel-io/flannel"
	cniModule     = "github.com/containernetworking/cni"
	pluginsModule = "github.com/containernetworking/plugins"

	// kubernetesStamp is the variable in which programs of Kubernetes have their version.
	kubernetesStamp = "k8s.io/component-base/version.gitVersion"
)

// EndToEndTests is the program of Kubernetes' own end-to-end tests.
const EndToEndTests = "e2e.test"

// What a node with Flannel runs: its daemon, the program that calls network plugins, and the plugins.
const (
	Flannel       = "flanneld"
	FlannelPlugin = "flannel"
	CNITool       = "cnitool"
	cniBridge     = "bridge"
	cniHostLocal  = "host-local"
	cniPortMap    = "portmap"
)

// CNIPlugins are the network plugins that Flannel's configuration calls.
func CNIPlugins() []string { return []string{FlannelPlugin, cniBridge, cniHostLocal, cniPortMap} }

// cniPlugin is a program of the CNI project.
func cniPlugin(name, kind string) spec {
	return spec{dir: flannelDir, module: pluginsModule, pkg: pluginsModule + "/plugins/" + kind + "/" + name,
		minutes: 1}
}

// kubernetes is a program of Kubernetes.
func kubernetes(dir, name string, minutes int, asset asset) spec {
	return spec{dir: dir, module: kubernetesModule, pkg: kubernetesModule + "/cmd/" + name,
		stamp: kubernetesStamp, minutes: minutes, asset: asset}
}

// specs define how the programs are built.
var specs = withOlderMinors(map[string]spec{
	// It has its version in its source.
	"etcd": {dir: kubernetesDir, module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3", minutes: 1,
		asset: mustBeAsset},
	apiServer:                 kubernetes(kubernetesDir, apiServer, 3, mustBeAsset),
	"kubectl":                 kubernetes(kubernetesDir, "kubectl", 1, mustBeAsset),
	"kube-proxy":              kubernetes(kubernetesDir, "kube-proxy", 1, mayBeAsset),
	"kubelet":                 kubernetes(nodeDir, "kubelet", 1, mayBeAsset),
	"kube-controller-manager": kubernetes(nodeDir, "kube-controller-manager", 1, mayBeAsset),
	"kube-scheduler":          kubernetes(nodeDir, "kube-scheduler", 1, mayBeAsset),
	"kubeadm":                 kubernetes(kubeadmDir, "kubeadm", 2, mayBeAsset),
	// It can discover what to scrape in every cloud; a check of rules needs none of that.
	promtool: {dir: "test/env/tools/prometheus", module: prometheusModule, pkg: prometheusModule + "/cmd/promtool",
		stamp: "github.com/prometheus/common/version.Version", tags: "remove_all_sd", minutes: 2},
	"helm": {dir: "test/env/tools/helm", module: helmModule, pkg: helmModule + "/cmd/helm",
		stamp: "helm.sh/helm/v3/internal/version.version", minutes: 2},
	EndToEndTests: {dir: e2eDir, module: kubernetesModule, pkg: kubernetesModule + "/test/e2e", tests: true,
		stamp: kubernetesStamp, minutes: 20},
	"agnhost": {dir: e2eDir, module: kubernetesModule, pkg: kubernetesModule + "/test/images/agnhost", minutes: 1},
	"coredns": {dir: "test/env/tools/coredns", module: "github.com/coredns/coredns", pkg: "github.com/coredns/coredns",
		minutes: 3},
	// On amd64 its back end for UDP is in C, also where another one is used.
	Flannel: {dir: flannelDir, module: flannelModule, pkg: flannelModule, stamp: flannelModule + "/pkg/version.Version",
		tags: "netgo,osusergo", cgo: true, minutes: 3},
	CNITool:      {dir: flannelDir, module: cniModule, pkg: cniModule + "/cnitool", minutes: 1},
	cniBridge:    cniPlugin(cniBridge, "main"),
	cniHostLocal: cniPlugin(cniHostLocal, "ipam"),
	cniPortMap:   cniPlugin(cniPortMap, "meta"),
	FlannelPlugin: {dir: flannelDir + "/plugin", module: pluginsModule,
		pkg: pluginsModule + "/plugins/meta/flannel", minutes: 1},
	"kube-vip-v1.2.2": kubeVIP("v1.2.2"),
	"kube-vip-v1.0.0": kubeVIP("v1.0.0"),
	"kube-vip-v0.9.1": kubeVIP("v0.9.1"),
})

// withOlderMinors adds kube-apiserver of each older minor, and what must not be newer than it
// (https://kubernetes.io/releases/version-skew-policy/).
func withOlderMinors(all map[string]spec) map[string]spec {
	for _, minor := range Minors()[1:] {
		for _, name := range []string{apiServer, "kube-controller-manager", "kube-scheduler"} {
			all[name+"-v"+minor] = kubernetes(kubernetesDir+"/v"+minor, name, all[name].minutes, notAsset)
		}
	}
	return all
}

// specOf returns how the named program is built.
func specOf(name string) (spec, error) {
	if s, ok := specs[name]; ok {
		return s, nil
	}
	return spec{}, fmt.Errorf("no tool is called %q: choose among %s", name, strings.Join(Names(), ", "))
}

// Names lists the programs that tests and the demo need by default, in the order that shares most when they are
// built one by one. Binary also knows those of the older Minors, such as kube-apiserver-v1.36, and what only make
// k8s-e2e and Flannel need.
func Names() []string {
	return []string{"etcd", apiServer, "kubectl", "kube-proxy", "kube-vip-v1.2.2", "kube-vip-v1.0.0",
		"kube-vip-v0.9.1", "kubelet",
		"kube-controller-manager", "kube-scheduler", "kubeadm", promtool, "helm"}
}

// Minors lists the minors of Kubernetes whose control plane can be had, the newest first. Tests run against the
// newest unless MinorVariable names another.
func Minors() []string { return []string{"1.37", "1.36", "1.35"} }

// ofMinor is the name under which the program of a minor is built; without a minor it is the newest. Programs that
// work with every kube-apiserver, such as etcd and kubectl, are the newest always.
func ofMinor(name, minor string) (string, error) {
	minors := Minors()
	if minor != "" && !slices.Contains(minors, minor) {
		return "", fmt.Errorf("%s=%q: choose among %s, or unset it", MinorVariable, minor, strings.Join(minors, ", "))
	}
	if older := name + "-v" + minor; specs[older].dir != "" {
		return older, nil
	}
	return name, nil
}

// ldflags are the linker's flags. Kubernetes reports its version at /version; without it that is v0.0.0-master. The
// module v0.315.1 of Prometheus is its release 3.15.1.
func (s spec) ldflags(version string) string {
	number := strings.TrimPrefix(version, "v")
	switch s.module {
	case kubernetesModule:
		major, rest, _ := strings.Cut(number, ".")
		minor, _, _ := strings.Cut(rest, ".")
		const pkg = "k8s.io/component-base/version"
		version += fmt.Sprintf(" -X %[1]s.gitMajor=%[2]s -X %[1]s.gitMinor=%[3]s", pkg, major, minor)
	case prometheusModule:
		version = number
	}
	flags := "-s -w"
	if s.stamp != "" {
		flags += " -X " + s.stamp + "=" + version
	}
	if s.cgo {
		flags += " -linkmode external -extldflags -static"
	}
	return flags
}

// requiredVersion reads from the text of a go.mod the version at which it requires a module.
func requiredVersion(goMod, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\S+)`)
	match := line.FindStringSubmatch(goMod)
	if match == nil {
		return "", fmt.Errorf("go.mod requires no %s", module)
	}
	return match[1], nil
}

// recipe is a spec with everything that decides about the result of the build.
type recipe struct {
	spec
	name, version, flags string
	// key changes with each of: the nested go.mod and go.sum, the package, the flags, the Go toolchain.
	key string
}

// title names program and version, such as kube-vip v1.0.0.
func (r recipe) title() string {
	return regexp.MustCompile(`-v\d.*$`).ReplaceAllString(r.name, "") + " " + r.version
}

// recipeFor reads the nested module below root. toolchain is what the go command says about itself.
func recipeFor(root, name, toolchain string) (recipe, error) {
	s, err := specOf(name)
	if err != nil {
		return recipe{}, err
	}
	var files [2]string
	for i, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, s.dir, file))
		if err != nil {
			return recipe{}, fmt.Errorf("read the pinned versions of %s: %w", name, err)
		}
		files[i] = string(content)
	}
	version, err := requiredVersion(files[0], s.module)
	if err != nil {
		return recipe{}, fmt.Errorf("%s/go.mod: %w", s.dir, err)
	}
	ldflags := s.ldflags(version)
	parts := slices.Concat(files[:], []string{s.pkg, toolchain}, buildFlags(ldflags, s.tags))
	return recipe{spec: s, name: name, version: version, flags: ldflags, key: keyOf(parts...)}, nil
}

// keyOf is a short hash of parts; moving text from one part to the next changes it.
func keyOf(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// trimPath keeps the paths of this machine out of programs.
const trimPath = "-trimpath"

// buildFlags are the flags of go build for a static, reproducible program.
func buildFlags(ldflags, tags string) []string {
	flags := []string{trimPath, "-ldflags", ldflags}
	if tags != "" {
		flags = append(flags, "-tags", tags)
	}
	return flags
}
