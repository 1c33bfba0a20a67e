package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestModuleRootPassesNestedModules(t *testing.T) {
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "test/env/tools", "test/env/tools/kubernetes", "test/env/tools/kube-vip/v1.0.0"} {
		got, err := moduleRootAbove(filepath.Join(root, dir))
		if err != nil || got != root {
			t.Errorf("root above %s = %s, %v; want %s", dir, got, err, root)
		}
	}
	if _, err := moduleRootAbove(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run this inside a clone") {
		t.Errorf("root above a directory outside = %v, want an error with the remedy", err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(CacheVariable, "/somewhere/else")
	if got, err := CacheDir(); err != nil || got != "/somewhere/else" {
		t.Errorf("CacheDir() = %s, %v; want the directory of %s", got, err, CacheVariable)
	}
	t.Setenv(CacheVariable, "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if got, err := CacheDir(); err != nil || got != "/cache/phoenixnap-cloud-provider" {
		t.Errorf("CacheDir() = %s, %v", got, err)
	}
}

func TestRequiredVersion(t *testing.T) {
	goMod := "module m\n\nrequire (\n\tk8s.io/kubernetes v1.2.3 // indirect\n\tk8s.io/kubernetes-more " +
		"v9.9.9\n)\n\nrequire example.com/one v0.1.0\nreplace k8s.io/api => k8s.io/api v0.2.3\n"
	for module, want := range map[string]string{"k8s.io/kubernetes": "v1.2.3", "example.com/one": "v0.1.0",
		"k8s.io/api": "", "io/kubernetes": ""} {
		got, err := requiredVersion(goMod, module)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("requiredVersion(%s) = %q, %v; want %q", module, got, err, want)
		}
	}
}

// TestRecipes reads the nested modules of this source tree.
func TestRecipes(t *testing.T) {
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	names := Names()
	for name := range specs {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		r, err := recipeFor(root, name, "go1")
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := keys[r.key]; taken {
			t.Errorf("%s and %s have the same key", name, other)
		}
		keys[r.key] = name
		if version, isVIP := strings.CutPrefix(name, kubeVIPPrefix); isVIP && r.version != version {
			t.Errorf("%s would be built at version %s", name, r.version)
		}
		if _, version, isOlder := strings.Cut(name, "-v1."); isOlder && r.module == kubernetesModule &&
			!strings.HasPrefix(r.version, "v1."+version+".") {
			t.Errorf("%s would be built at version %s", name, r.version)
		}
		if newer, err := recipeFor(root, name, "go2"); err != nil || newer.key == r.key {
			t.Errorf("%s: another toolchain has the same key (%v)", name, err)
		}
	}
	if _, err := specOf("minikube"); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("specOf(minikube) = %v, want the choice of names", err)
	}
}

// Every minor has recipes of its own, and only what must not be newer than the API server follows the choice.
func TestOfMinor(t *testing.T) {
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range Minors() {
		for _, program := range []string{apiServer, "kube-controller-manager", "kube-scheduler"} {
			name, err := ofMinor(program, minor)
			if err != nil {
				t.Fatal(err)
			}
			r, err := recipeFor(root, name, "go1")
			if err != nil {
				t.Fatal(err)
			}
			if want := program + " v" + minor + "."; !strings.HasPrefix(r.title(), want) {
				t.Errorf("minor %s would be %s, want %s…", minor, r.title(), want)
			}
		}
		if other, err := ofMinor("etcd", minor); other != "etcd" || err != nil {
			t.Errorf("minor %s has etcd become %s, %v", minor, other, err)
		}
	}
	if got, err := ofMinor(apiServer, ""); got != apiServer || err != nil {
		t.Errorf("without a minor: %s, %v", got, err)
	}
	_, err = ofMinor("etcd", "1.20")
	checkError(t, err, "choose among "+strings.Join(Minors(), ", "))
}

func TestStampKubernetes(t *testing.T) {
	const p = "k8s.io/component-base/version"
	want := "-s -w -X " + p + ".gitVersion=v1.37.2 -X " + p + ".gitMajor=1 -X " + p + ".gitMinor=37"
	if got := specs[apiServer].ldflags("v1.37.2"); got != want {
		t.Errorf("ldflags() = %q, want %q", got, want)
	}
}

func TestKeyOfSeparatesParts(t *testing.T) {
	if keyOf("ab", "c") == keyOf("a", "bc") || keyOf("a") == keyOf("a", "") {
		t.Error("different parts have the same key")
	}
}

func TestReplacement(t *testing.T) {
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kubectl", "vip"} {
		writeFile(t, filepath.Join(assets, name), "#!/bin/sh\n", 0o755)
	}
	writeFile(t, filepath.Join(assets, "kube-apiserver"), "no program", 0o644)
	for name, tc := range map[string]struct {
		tool string
		env  map[string]string
		want string
		err  string
	}{
		"nothing set": {tool: "etcd"},
		"asset":       {tool: "etcd", env: map[string]string{assetsVariable: assets}, want: "etcd"},
		"asset not executable": {tool: "kube-apiserver", env: map[string]string{assetsVariable: assets},
			err: "no executable"},
		"asset missing": {tool: "etcd", env: map[string]string{assetsVariable: "/nonexistent"},
			err: assetsVariable + " is set"},
		"optional asset":       {tool: "kube-proxy", env: map[string]string{assetsVariable: assets}},
		"kube-vip is no asset": {tool: "kube-vip-v1.0.0", env: map[string]string{assetsVariable: assets}},
		"kube-vip replaced": {tool: "kube-vip-v0.9.1",
			env: map[string]string{kubeVIPVariable: filepath.Join(assets, "vip")}, want: "vip"},
		"kube-vip of a version that is not pinned": {tool: "kube-vip-v9.9.9",
			env: map[string]string{kubeVIPVariable: filepath.Join(assets, "vip")}, want: "vip"},
		"kube-vip missing": {tool: "kube-vip-v1.0.0", env: map[string]string{kubeVIPVariable: "/nonexistent"},
			err: kubeVIPVariable + " is set"},
		"kube-vip is directory": {tool: "kube-vip-v1.0.0", env: map[string]string{kubeVIPVariable: assets},
			err: "no executable"},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			if want != "" {
				want = filepath.Join(assets, want)
			}
			got, err := replacement(tc.tool, func(name string) string { return tc.env[name] })
			if got != want && tc.err == "" {
				t.Errorf("replacement() = %q, want %q", got, want)
			}
			checkError(t, err, tc.err)
		})
	}
}

// checkError wants an error with that text, or none when the text is empty.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error = %v, want one with %q", err, want)
	}
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestKubeVIPs: a kube-vip of one's own is asked for its version; without one, the pinned versions are tried.
func TestKubeVIPs(t *testing.T) {
	t.Setenv(kubeVIPVariable, "")
	got, err := KubeVIPs(t.Context())
	if err != nil || !slices.Equal(got, PinnedKubeVIPs()) {
		t.Errorf("KubeVIPs() = %v, %v, want the pinned versions", got, err)
	}
	for name, tc := range map[string]struct {
		script, want, err string
	}{
		"a release": {script: `echo "Kube-VIP Release Information"; echo "Version:  v1.2.9"; echo "Build:    abc"`,
			want: "v1.2.9"},
		"a build without a version": {script: `echo "Version:  "`, err: "prints no version of kube-vip"},
		"another program":           {script: "exit 3", err: "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "kube-vip")
			writeFile(t, program, "#!/bin/sh\n"+tc.script+"\n", 0o755)
			t.Setenv(kubeVIPVariable, program)
			got, err := KubeVIPs(t.Context())
			if tc.want != "" && !slices.Equal(got, []string{tc.want}) {
				t.Errorf("KubeVIPs() = %v, %v, want %s", got, err, tc.want)
			}
			checkError(t, err, tc.err)
		})
	}
}

// TestPinnedKubeVIPs: each pinned version can be built.
func TestPinnedKubeVIPs(t *testing.T) {
	for _, version := range PinnedKubeVIPs() {
		if name := kubeVIPPrefix + version; !slices.Contains(Names(), name) || specs[name].dir == "" {
			t.Errorf("%s is pinned and is not one of the programs", name)
		}
	}
}
