package automation

import (
	"encoding/json"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// settings are what is read of .github/renovate.json (https://docs.renovatebot.com/configuration-options).
type settings struct {
	IgnorePaths    []string
	CustomManagers []manager
	PackageRules   []struct {
		MatchManagers, MatchFileNames, MatchUpdateTypes, MatchPackageNames []string
		Enabled                                                            *bool
	}
}

// manager finds versions with regular expressions.
type manager struct {
	Description                         string
	ManagerFilePatterns, MatchStrings   []string
	DatasourceTemplate, DepNameTemplate string
}

// defaults are the files that Renovate's own managers read.
var defaults = map[string]string{
	"gomod":          `(^|/)go\.mod$`,
	"dockerfile":     `(^|/)([Dd]ocker|[Cc]ontainer)file[^/]*$`,
	"github-actions": `(^|/)(workflow-templates|\.(?:github|gitea|forgejo)/(?:workflows|actions))/.+\.ya?ml$`,
}

func renovate(t *testing.T) settings {
	t.Helper()
	var s settings
	if err := json.Unmarshal([]byte(read(t, ".github/renovate.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// tracked are the files below the root, without what git ignores.
func tracked(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "dist", "node_modules"}, entry.Name()) {
			return filepath.SkipDir
		}
		if !entry.IsDir() {
			relative, _ := filepath.Rel(root, file) // both begin with root
			names = append(names, filepath.ToSlash(relative))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// glob reports whether a name matches a pattern with * (no slash) and ** (anything).
func glob(pattern, name string) bool {
	expression := regexp.QuoteMeta(pattern)
	for _, r := range [][2]string{{`\*\*/`, `(?:.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}} {
		expression = strings.ReplaceAll(expression, r[0], r[1])
	}
	return regexp.MustCompile("^" + expression + "$").MatchString(name)
}

func (s settings) ignores(name string) bool {
	return slices.ContainsFunc(s.IgnorePaths, func(pattern string) bool { return glob(pattern, name) })
}

// frozen reports whether a rule keeps updates of a kind from a go.mod file.
func (s settings) frozen(file, update string) bool {
	for _, rule := range s.PackageRules {
		ofFile := slices.ContainsFunc(rule.MatchFileNames, func(pattern string) bool { return glob(pattern, file) })
		ofKind := rule.MatchUpdateTypes == nil || slices.Contains(rule.MatchUpdateTypes, update)
		if ofFile && ofKind && rule.Enabled != nil && !*rule.Enabled && slices.Contains(rule.MatchManagers, "gomod") {
			return true
		}
	}
	return false
}

// disabled reports whether a rule keeps all updates of a package away, wherever it is named.
func (s settings) disabled(name string) bool {
	for _, rule := range s.PackageRules {
		everywhere := rule.MatchManagers == nil && rule.MatchFileNames == nil && rule.MatchUpdateTypes == nil
		matches := func(pattern string) bool { return glob(pattern, name) }
		if everywhere && slices.ContainsFunc(rule.MatchPackageNames, matches) && rule.Enabled != nil && !*rule.Enabled {
			return true
		}
	}
	return false
}

// finds returns the versions that a manager reads from a file.
func (m manager) finds(t *testing.T, file string) []string {
	t.Helper()
	reads := func(pattern string) bool { return regexp.MustCompile(strings.Trim(pattern, "/")).MatchString(file) }
	if !slices.ContainsFunc(m.ManagerFilePatterns, reads) {
		return nil
	}
	var versions []string
	for _, expression := range m.MatchStrings {
		compiled := regexp.MustCompile(expression)
		at := compiled.SubexpIndex("currentValue")
		if at < 0 {
			t.Fatalf("%s: %s has no group currentValue", m.Description, expression)
		}
		for _, match := range compiled.FindAllStringSubmatch(read(t, file), -1) {
			versions = append(versions, match[at])
		}
	}
	return versions
}

// TestRenovateReadsEveryFile: its presets leave out folders called test, where most go.mod files are.
func TestRenovateReadsEveryFile(t *testing.T) {
	s := renovate(t)
	if s.IgnorePaths == nil {
		t.Error("without ignorePaths, config:recommended leaves out every folder called test")
	}
	read := map[string]int{}
	for _, name := range tracked(t) {
		for kind, pattern := range defaults {
			if !regexp.MustCompile(pattern).MatchString(name) {
				continue
			}
			read[kind]++
			if s.ignores(name) {
				t.Errorf("ignorePaths leaves out %s", name)
			}
		}
	}
	if read["gomod"] < 9 || read["dockerfile"] < 2 || read["github-actions"] < 5 {
		t.Errorf("files by kind: %v; the patterns are out of date", read)
	}
}

// TestOldVersionsStay: the folder of an older minor gets patch releases, the folder of a kube-vip nothing, and both
// hold what they are called. All other modules are updated.
func TestOldVersionsStay(t *testing.T) {
	s := renovate(t)
	versioned := regexp.MustCompile(`^test/env/tools/(kubernetes|kube-vip)/(v[\d.]+)/go\.mod$`)
	for _, name := range tracked(t) {
		if path.Base(name) != "go.mod" {
			continue
		}
		match := versioned.FindStringSubmatch(name)
		want := map[string]bool{"major": match != nil, "minor": match != nil,
			"patch": match != nil && match[1] == "kube-vip"}
		for update, frozen := range want {
			if s.frozen(name, update) != frozen {
				t.Errorf("%s: a %s update is kept away: %v, want %v", name, update, !frozen, frozen)
			}
		}
		if match == nil {
			continue
		}
		requirement := regexp.MustCompile(`/` + match[1] + ` ` + regexp.QuoteMeta(match[2]) + `(\.\d+)*\b`)
		if !requirement.MatchString(read(t, name)) {
			t.Errorf("%s does not require %s %s", name, match[1], match[2])
		}
	}
}

// TestOwnImagesStay: the kustomizations and the chart name the images of the release that the tree becomes. Renovate
// reads both, and would put another version there. All other packages are updated.
func TestOwnImagesStay(t *testing.T) {
	s := renovate(t)
	own := regexp.MustCompile(`(?m)^ *(?:- name|repository|newName): ((?:docker\.io/)?phoenixnap/\S+)$`)
	found := 0
	for _, name := range tracked(t) {
		if s.ignores(name) || path.Base(name) != "kustomization.yaml" && path.Base(name) != "values.yaml" {
			continue
		}
		for _, match := range own.FindAllStringSubmatch(read(t, name), -1) {
			found++
			if !s.disabled(match[1]) {
				t.Errorf("%s: %s is updated", name, match[1])
			}
		}
	}
	if found < 4 {
		t.Errorf("%d images of ours in kustomizations and the chart; the pattern is out of date", found)
	}
	for _, other := range []string{"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3", "ghcr.io/kube-vip/kube-vip",
		"docker.io/library/golang"} {
		if s.disabled(other) {
			t.Errorf("%s is not updated", other)
		}
	}
}

// TestRenovateFindsEveryPin applies the regular expressions to the files: the images of kube-vip wherever they are
// named, the newest minor of Kubernetes, and the versions of kube-vip that are tested.
func TestRenovateFindsEveryPin(t *testing.T) {
	s := renovate(t)
	found := map[string][]string{}
	for _, name := range tracked(t) {
		if s.ignores(name) || strings.HasPrefix(name, ".git") || strings.HasSuffix(name, ".sum") {
			continue
		}
		for _, m := range s.CustomManagers {
			found[name] = append(found[name], m.finds(t, name)...)
		}
	}
	for _, pin := range []struct{ files, version string }{
		{`\.(go|yaml|tpl)$`, `ghcr\.io/kube-vip/kube-vip:(v[\d.]+\d)`},
		{`^Makefile$`, `MINORS \S?= ([\d.]+)`},
		{`^test/env/tools/spec\.go$`, `func Minors\(\)[^{]*\{[^{]*\{"([\d.]+)"`},
		{`^test/env/tools/spec\.go$`, `kubeVIP\("(v[\d.]+)"\)`},
	} {
		count := 0
		for _, name := range tracked(t) {
			if s.ignores(name) || !regexp.MustCompile(pin.files).MatchString(name) ||
				strings.HasPrefix(name, "test/repo/automation/") {
				continue
			}
			for _, match := range regexp.MustCompile(pin.version).FindAllStringSubmatch(read(t, name), -1) {
				count++
				if !slices.Contains(found[name], match[1]) {
					t.Errorf("%s: no manager of Renovate finds the version in %q", name, match[0])
				}
			}
		}
		if count == 0 {
			t.Errorf("nothing is pinned as %s; the pattern is out of date", pin.version)
		}
	}
}

// TestManagersAreWhole: each regular expression finds something, and Renovate learns what it is and where to look.
func TestManagersAreWhole(t *testing.T) {
	for _, m := range renovate(t).CustomManagers {
		for _, expression := range m.MatchStrings {
			one := m
			one.MatchStrings = []string{expression}
			finds := func(name string) bool { return len(one.finds(t, name)) > 0 }
			if !slices.ContainsFunc(tracked(t), finds) {
				t.Errorf("%s: %s finds nothing", m.Description, expression)
			}
			if m.DepNameTemplate == "" && !strings.Contains(expression, "(?<depName>") || m.DatasourceTemplate == "" {
				t.Errorf("%s: no depName or datasource", m.Description)
			}
		}
	}
}

func TestGlob(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"**/test/**", "test/env/tools/dev/go.mod", true},
		{"**/test/**", "a/test/b", true},
		{"**/testdata/**", "test/env/go.mod", false},
		{"test/env/tools/kube-vip/v*/go.mod", "test/env/tools/kube-vip/v1.0.0/go.mod", true},
		{"test/env/tools/kubernetes/v*/go.mod", "test/env/tools/kubernetes/node/go.mod", false},
	} {
		if glob(test.pattern, test.name) != test.want {
			t.Errorf("glob(%q, %q) = %v", test.pattern, test.name, !test.want)
		}
	}
}
