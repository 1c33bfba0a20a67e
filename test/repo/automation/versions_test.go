package automation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// inFile returns the only group of a pattern in a file, which has to contain it.
func inFile(t *testing.T, name, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(read(t, name))
	if match == nil {
		t.Fatalf("%s has no %s", name, pattern)
	}
	return match[1]
}

// supported are the minors whose API servers the tests use, the newest first.
func supported(t *testing.T) []string {
	t.Helper()
	list := inFile(t, "test/env/tools/spec.go", `func Minors\(\) \[\]string \{ return \[\]string\{(.*)\} \}`)
	return strings.Split(strings.ReplaceAll(list, `"`, ""), ", ")
}

// TestKubernetesLibrariesAreOfTheNewestMinor: the libraries of a minor are tested upstream with its API server.
func TestKubernetesLibrariesAreOfTheNewestMinor(t *testing.T) {
	newest := supported(t)[0]
	pattern := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) v0\.(\d+)\.(\d+)( // indirect)?$`)
	found := pattern.FindAllStringSubmatch(read(t, "go.mod"), -1)
	if len(found) < 8 {
		t.Fatalf("go.mod requires %d modules of Kubernetes; the pattern is out of date", len(found))
	}
	for _, module := range found {
		if minor := "1." + module[2]; minor != newest {
			t.Errorf("go.mod has %s of Kubernetes %s, and the tests' newest minor is %s", module[1], minor, newest)
		}
		if module[3] != found[0][3] {
			t.Errorf("%s is not of the patch release of %s", module[1], found[0][1])
		}
	}
}

// TestMinorsAreThreeInARow: Kubernetes supports three minors, and so do we.
func TestMinorsAreThreeInARow(t *testing.T) {
	all := supported(t)
	newest := minorOf(t, all[0])
	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprintf("1.%d", newest-i))
	}
	if !slices.Equal(all, want) {
		t.Errorf("the tests use the API servers of %q, want %q", all, want)
	}
	if got := strings.Fields(inFile(t, "Makefile", `(?m)^MINORS \?= (.*)$`)); !slices.Equal(got, want) {
		t.Errorf("make test-minors uses %q, want %q", got, want)
	}
}

// TestMinorsRunEveryTestOnAnAPIServer: a package that starts a control plane needs no entry in a list.
func TestMinorsRunEveryTestOnAnAPIServer(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, target := range []string{"test-api", "test-minor"} {
		_, recipe, ok := strings.Cut(makefile, "\n"+target+": ")
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		if !ok || !strings.Contains(recipe, "$(TESTFLAGS)") || !strings.Contains(recipe, "$(API)") {
			t.Errorf("make %s does not run the packages $(API): %q", target, recipe)
		}
	}
}

// TestPagesNameTheMinors: what the pages say is tested is what the tests use. The test of README.md holds its table.
func TestPagesNameTheMinors(t *testing.T) {
	all := supported(t)
	newest := all[0]
	ascending := strings.Join([]string{all[2], all[1], all[0]}, ", ")
	pinned, err := filepath.Glob(filepath.Join(root, "test/env/tools/kube-vip/v*"))
	if err != nil || len(pinned) == 0 {
		t.Fatalf("no version of kube-vip: %v", err)
	}
	for i, folder := range pinned {
		pinned[i] = strings.TrimPrefix(filepath.Base(folder), "v")
	}
	kubeVIPs := strings.Join(pinned, ", ")
	for _, says := range []struct{ page, text string }{
		{"docs/reference/support.md", "the three latest minors: " + ascending + "."},
		{"docs/reference/support.md", "| API server | " + ascending + " | `make test-minors` |"},
		{"docs/reference/support.md", "| kubelet | " + newest + ", with"},
		{"docs/reference/support.md", "| kube-proxy | v" + newest + ": mode nftables |"},
		{"docs/reference/support.md", "| | v" + newest + ": mode iptables |"},
		{"docs/guides/install.md", "   v" + newest + "."},
		{"docs/tutorial.md", "   v" + newest + "."},
		{"docs/reference/support.md", "| kube-vip | " + kubeVIPs + " | "},
	} {
		if !strings.Contains(read(t, says.page), says.text) {
			t.Errorf("%s does not say %q", says.page, says.text)
		}
	}
}

// newerThanTheirKinds are fields and values that came to an older kind of object, with the minor in which they became
// stable, where they are used, and how the page on support names them.
var newerThanTheirKinds = []struct {
	minor                 int
	file, uses, described string
}{
	{32, "controller/loadbalancer/reconcile/publish.go", "corev1.LoadBalancerIPModeVIP", "`ipMode`"},
	{32, "deploy/base/agent-policy.yaml", "authentication.kubernetes.io/node-name",
		"the name of the Node in the token of an agent"},
}

// TestChartNeedsTheNewestAPI: the chart refuses a cluster that lacks what we use, and no other.
func TestChartNeedsTheNewestAPI(t *testing.T) {
	page := read(t, "docs/reference/support.md")
	newest, kind := newestKind(t)
	if since := fmt.Sprintf("%s (1.%d)", kind, newest); !strings.Contains(page, since) {
		t.Errorf("docs/reference/support.md does not say %q", since)
	}
	for _, use := range newerThanTheirKinds {
		if !strings.Contains(read(t, use.file), use.uses) {
			t.Errorf("%s does not use %s: remove it here", use.file, use.uses)
		}
		if !strings.Contains(page, use.described) {
			t.Errorf("docs/reference/support.md does not name %s", use.described)
		}
		newest = max(newest, use.minor)
	}
	chart := inFile(t, "deploy/helm/phoenixnap-cloud-provider/Chart.yaml", `(?m)^kubeVersion: ">= 1\.(\d+)\.0-0"$`)
	if want := strconv.Itoa(newest); chart != want {
		t.Errorf("the chart needs Kubernetes 1.%s, and the newest API that is used 1.%s", chart, want)
	}
	if says := fmt.Sprintf("needs Kubernetes 1.%d", newest); !strings.Contains(page, says) {
		t.Errorf("docs/reference/support.md does not say %q", says)
	}
	if oldest := supported(t)[2]; newest > minorOf(t, oldest) {
		t.Errorf("the APIs need Kubernetes 1.%d, and %s is tested", newest, oldest)
	}
}

// newestKind is the kind of the manifests that came last to Kubernetes, and its minor, as its libraries say. A
// deprecated kind is an error.
func newestKind(t *testing.T) (newest int, name string) {
	t.Helper()
	for _, kind := range kindsOfTheManifests(t) {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			continue // of another project, such as PodMonitor
		}
		if old, ok := object.(interface{ APILifecycleDeprecated() (int, int) }); ok {
			major, minor := old.APILifecycleDeprecated()
			t.Errorf("the manifests use %s, deprecated since %d.%d", kind, major, minor)
		}
		if known, ok := object.(interface{ APILifecycleIntroduced() (int, int) }); ok {
			if _, minor := known.APILifecycleIntroduced(); minor > newest || minor == newest && kind.Kind < name {
				newest = minor
				name = kind.Kind
			}
		}
	}
	if newest == 0 {
		t.Fatal("no kind says when it came to Kubernetes")
	}
	return newest, name
}

func kindsOfTheManifests(t *testing.T) []schema.GroupVersionKind {
	t.Helper()
	found := map[schema.GroupVersionKind]bool{}
	for _, name := range tracked(t) {
		if !strings.HasPrefix(name, "deploy/rendered/") || !strings.HasSuffix(name, ".yaml") {
			continue
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(read(t, name))), 4096)
		for {
			var object struct{ APIVersion, Kind string }
			err := decoder.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			found[schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)] = true
		}
	}
	var all []schema.GroupVersionKind
	for kind := range found {
		all = append(all, kind)
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// minorOf is 37 for 1.37.
func minorOf(t *testing.T, version string) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimPrefix(version, "1."))
	if err != nil {
		t.Fatalf("%q is no minor of Kubernetes", version)
	}
	return number
}

// TestGoIsTheSameEverywhere: the images and the workflows build with the minor of Go that go.mod asks for, and with its
// toolchain, which is a release of that minor. The images of Go set GOTOOLCHAIN=local, which would keep their own.
func TestGoIsTheSameEverywhere(t *testing.T) {
	minor := inFile(t, "go.mod", `(?m)^go (\d+\.\d+)\.\d+$`)
	if toolchain := inFile(t, "go.mod", `(?m)^toolchain go(\d+\.\d+)\.\d+$`); toolchain != minor {
		t.Errorf("go.mod needs Go %s and names a toolchain of %s", minor, toolchain)
	}
	image := regexp.MustCompile(`docker\.io/library/golang:(\d+\.\d+)(-\w+)?@`)
	auto := regexp.MustCompile(`(?m)^(?:ENV GOTOOLCHAIN=|      GOTOOLCHAIN: )auto$`)
	count := 0
	for _, name := range tracked(t) {
		if !strings.HasPrefix(name, "Dockerfile.") && !strings.HasPrefix(name, ".github/workflows/") {
			continue
		}
		images := image.FindAllStringSubmatch(read(t, name), -1)
		if chosen := len(auto.FindAllString(read(t, name), -1)); chosen != len(images) {
			t.Errorf("%s names %d images of Go and sets GOTOOLCHAIN=auto %d times", name, len(images), chosen)
		}
		for _, match := range images {
			count++
			if match[1] != minor {
				t.Errorf("%s has Go %s, and go.mod %s", name, match[1], minor)
			}
		}
	}
	if count < 4 {
		t.Errorf("%d images of Go in Dockerfiles and workflows; the pattern is out of date", count)
	}
	for _, page := range []string{"README.md", "docs/guides/kubectl-pnap.md"} {
		if says := "Go " + minor + " or newer"; !strings.Contains(read(t, page), says) {
			t.Errorf("%s does not say %q", page, says)
		}
	}
	for _, name := range tracked(t) {
		if strings.HasSuffix(name, "/go.mod") {
			if nested := inFile(t, name, `(?m)^go (\d+\.\d+)\.\d+$`); nested != minor {
				t.Errorf("%s needs Go %s, and go.mod %s", name, nested, minor)
			}
		}
	}
}
