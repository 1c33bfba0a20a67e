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
	// pkg is the main package.
	pkg string
	// stamp returns the linker's flags that set the program's version.
	stamp func(version string) string
	// tags are the build tags, separated by commas.
	tags string
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
	assetsVariable  = "KUBEBUILDER_ASSETS"
	kubeVIPVariable = "KUBE_VIP_BINARY"

	apiServer        = "kube-apiserver"
	kubernetesDir    = "test/env/tools/kubernetes"
	kubernetesModule = "k8s.io/kubernetes"
	// nodeDir pins the Kubernetes programs that only a cluster with real nodes has.
	nodeDir       = kubernetesDir + "/node"
	kubeadmDir    = kubernetesDir + "/kubeadm"
	kubeVIPModule = "github.com/kube-vip/kube-vip"
	kubeVIPPrefix = "kube-vip-"

	promtool         = "promtool"
	prometheusModule = "github.com/prometheus/prometheus"

	helmModule = "helm.sh/helm/v3"
)

// specOf returns how the named program is built.
func specOf(name string) (spec, error) {
	kubernetes := spec{dir: kubernetesDir, module: kubernetesModule, pkg: kubernetesModule + "/cmd/" + name,
		stamp: stampKubernetes}
	switch name {
	case "etcd":
		return spec{dir: kubernetesDir, module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3",
			stamp: stampEtcd, minutes: 1, asset: mustBeAsset}, nil
	case apiServer:
		kubernetes.minutes = 3
		kubernetes.asset = mustBeAsset
		return kubernetes, nil
	case apiServer + "-v1.35", apiServer + "-v1.34":
		dir := kubernetesDir + "/" + strings.TrimPrefix(name, apiServer+"-")
		return spec{dir: dir, module: kubernetesModule, pkg: kubernetesModule + "/cmd/" + apiServer,
			stamp: stampKubernetes, minutes: 3}, nil
	case "kubectl":
		kubernetes.minutes = 1
		kubernetes.asset = mustBeAsset
		return kubernetes, nil
	case "kube-proxy":
		kubernetes.minutes = 1
		kubernetes.asset = mayBeAsset
		return kubernetes, nil
	case "kubelet", "kube-controller-manager", "kube-scheduler":
		kubernetes.dir = nodeDir
		kubernetes.minutes = 1
		kubernetes.asset = mayBeAsset
		return kubernetes, nil
	case "kubeadm":
		kubernetes.dir = kubeadmDir
		kubernetes.minutes = 2
		kubernetes.asset = mayBeAsset
		return kubernetes, nil
	case promtool:
		// It can discover what to scrape in every cloud; a check of rules needs none of that.
		return spec{dir: "test/env/tools/prometheus", module: prometheusModule, pkg: prometheusModule + "/cmd/promtool",
			stamp: stampPrometheus, tags: "remove_all_sd", minutes: 2}, nil
	case "helm":
		return spec{dir: "test/env/tools/helm", module: helmModule, pkg: helmModule + "/cmd/helm", stamp: stampHelm,
			minutes: 2}, nil
	case "kube-vip-v1.0.0", "kube-vip-v0.9.1":
		dir := "test/env/tools/kube-vip/" + strings.TrimPrefix(name, kubeVIPPrefix)
		return spec{dir: dir, module: kubeVIPModule, pkg: kubeVIPModule, stamp: stampKubeVIP, minutes: 1}, nil
	default:
		return spec{}, fmt.Errorf("no tool is called %q: choose among %s", name, strings.Join(Names(), ", "))
	}
}

// Names lists the programs that tests and the demo need by default, in the order that shares most when they are
// built one by one. Binary also knows kube-apiserver-v<minor> of the older Minors.
func Names() []string {
	return []string{"etcd", apiServer, "kubectl", "kube-proxy", "kube-vip-v1.0.0", "kube-vip-v0.9.1", "kubelet",
		"kube-controller-manager", "kube-scheduler", "kubeadm", promtool, "helm"}
}

// Minors lists the minors of Kubernetes whose kube-apiserver can be had, the newest first. Tests run against the
// newest unless MinorVariable names another.
func Minors() []string { return []string{"1.36", "1.35", "1.34"} }

// ofMinor is the name under which the program of a minor is built; without a minor it is the newest.
func ofMinor(name, minor string) (string, error) {
	minors := Minors()
	switch {
	case minor == "" || minor == minors[0]:
		return name, nil
	case !slices.Contains(minors, minor):
		return "", fmt.Errorf("%s=%q: choose among %s, or unset it", MinorVariable, minor, strings.Join(minors, ", "))
	case name == apiServer:
		return name + "-v" + minor, nil
	default:
		return name, nil
	}
}

// stampKubernetes gives the version that the server reports at /version; without it that is v0.0.0-master.
func stampKubernetes(version string) string {
	const pkg = "k8s.io/component-base/version"
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, version,
		major, minor)
}

// stampEtcd gives nothing: etcd has its version in its source.
func stampEtcd(string) string { return "-s -w" }

// stampPrometheus gives the version in the form of Prometheus's releases: its module v0.313.5 is Prometheus 3.13.5.
func stampPrometheus(version string) string {
	return "-s -w -X github.com/prometheus/common/version.Version=" + strings.TrimPrefix(version, "v")
}

func stampHelm(version string) string {
	return "-s -w -X helm.sh/helm/v3/internal/version.version=" + version
}

func stampKubeVIP(version string) string { return "-s -w -X main.Version=" + version }

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
	name, version, ldflags string
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
	ldflags := s.stamp(version)
	parts := slices.Concat(files[:], []string{s.pkg, toolchain}, buildFlags(ldflags, s.tags))
	return recipe{spec: s, name: name, version: version, ldflags: ldflags, key: keyOf(parts...)}, nil
}

// keyOf is a short hash of parts; moving text from one part to the next changes it.
func keyOf(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// buildFlags are the flags of go build for a static, reproducible program.
func buildFlags(ldflags, tags string) []string {
	flags := []string{"-trimpath", "-ldflags", ldflags}
	if tags != "" {
		flags = append(flags, "-tags", tags)
	}
	return flags
}
