package automation

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

// workflow is what is read of a workflow, and of an action of our own.
type workflow struct {
	Permissions any
	Jobs        map[string]job
	Runs        struct{ Steps []step }
}

type job struct {
	Uses, Needs    string
	With           map[string]any
	Permissions    map[string]string
	TimeoutMinutes any `json:"timeout-minutes"`
	Strategy       struct {
		Matrix struct{ Include []map[string]any }
	}
	Steps []step
}

type step struct {
	Uses, Run string
	Env       map[string]string
}

const (
	shared  = ".github/workflows/make.yml"
	release = ".github/workflows/release.yml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// automated are the workflows and actions of the repository.
func automated(t *testing.T) map[string]workflow {
	t.Helper()
	found := map[string]workflow{}
	for _, pattern := range []string{".github/workflows/*.yml", ".github/actions/*/action.yml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s (%v)", pattern, err)
		}
		for _, file := range files {
			relative, _ := filepath.Rel(root, file) // both begin with root
			name := filepath.ToSlash(relative)
			var w workflow
			if err := yaml.Unmarshal([]byte(read(t, name)), &w); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			found[name] = w
		}
	}
	return found
}

// steps are all steps of a workflow or action.
func (w workflow) steps() []step {
	steps := w.Runs.Steps
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		steps = append(steps, w.Jobs[name].Steps...)
	}
	return steps
}

var (
	usesLine = regexp.MustCompile(`(?m)^[ -]*uses:[ ]*(\S+)(.*)$`)
	pinned   = regexp.MustCompile(`^([\w.-]+/[\w./-]+)@[0-9a-f]{40}$`)
	tagged   = regexp.MustCompile(`^ # v\d+\.\d+\.\d+$`)
)

// TestActionsArePinned: a tag of an action can move to other code; a commit cannot. One version serves everywhere.
func TestActionsArePinned(t *testing.T) {
	versions := map[string]string{}
	for name := range automated(t) {
		for _, match := range usesLine.FindAllStringSubmatch(read(t, name), -1) {
			uses := match[1]
			comment := match[2]
			if local, ok := strings.CutPrefix(uses, "./"); ok {
				if _, err := os.Stat(filepath.Join(root, local)); err != nil {
					t.Errorf("%s: uses %s, which is not in the repository", name, uses)
				}
				continue
			}
			action := pinned.FindStringSubmatch(uses)
			if action == nil || !tagged.MatchString(comment) {
				t.Errorf("%s: %q is not of the form owner/action@<40 hexadecimal digits> # v1.2.3", name, match[0])
				continue
			}
			if other, known := versions[action[1]]; known && other != uses+comment {
				t.Errorf("%s: %s%s, elsewhere %s", name, uses, comment, other)
			}
			versions[action[1]] = uses + comment
		}
	}
	if len(versions) < 3 {
		t.Errorf("only %d actions found; the pattern is out of date", len(versions))
	}
}

// targets are those of the Makefile that are called by name.
func targets(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		names = append(names, match[1])
	}
	return names
}

var makeCall = regexp.MustCompile(`\bmake ("?[\w$-]+)`)

// calls are the targets that a workflow runs, in order: by itself, or with the workflow that all share.
func (w workflow) calls() []string {
	var called []string
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		j := w.Jobs[name]
		if j.Uses != "./"+shared {
			continue
		}
		for _, include := range j.Strategy.Matrix.Include {
			target, _ := include["target"].(string)
			called = append(called, target)
		}
	}
	for _, s := range w.steps() {
		for _, match := range makeCall.FindAllStringSubmatch(s.Run, -1) {
			if match[1] != `"$TARGET` {
				called = append(called, match[1])
			}
		}
	}
	return called
}

// TestWorkflowsCallTargets: what a workflow runs, a developer can run.
func TestWorkflowsCallTargets(t *testing.T) {
	known := targets(t)
	all := automated(t)
	for name, w := range all {
		for _, target := range w.calls() {
			if !slices.Contains(known, target) {
				t.Errorf("%s: make %s: the Makefile has no such target", name, target)
			}
		}
		for i, j := range w.Jobs {
			if j.Uses != "" && (j.With["target"] != "${{ matrix.target }}" || len(j.Strategy.Matrix.Include) == 0) {
				t.Errorf("%s: job %s: its targets are not those of its matrix", name, i)
			}
		}
	}
	for name, want := range map[string][]string{
		"pull-request": {"lint", "vulncheck", "unit", "test-api", "race"},
		"nightly":      {"test", "test-minors", "e2e", "k8s-e2e", "services", "flannel", "release"},
		"release":      {"release-notes", "release", "publish"},
	} {
		if got := all[".github/workflows/"+name+".yml"].calls(); !slices.Equal(got, want) {
			t.Errorf("%s runs make %q, want %q", name, got, want)
		}
	}
}

// besidesMake are the other programs that steps may call: they prepare the container.
var besidesMake = []string{"mkdir", "git config", "cosign login", "tee"}

// TestStepsPrepareOrMake: a step that does more than call make cannot be run elsewhere.
func TestStepsPrepareOrMake(t *testing.T) {
	separator := regexp.MustCompile(`\n|&&|\|`)
	for name, w := range automated(t) {
		for _, s := range w.steps() {
			for _, command := range separator.Split(s.Run, -1) {
				command = strings.TrimSpace(command)
				allowed := func(program string) bool { return strings.HasPrefix(command, program+" ") }
				if command != "" && !allowed("make") && !slices.ContainsFunc(besidesMake, allowed) {
					t.Errorf("%s runs %q: make it a target", name, command)
				}
				if strings.Contains(command, "${{") {
					t.Errorf("%s: %q: an expression becomes code of the shell; hand it over with env", name, command)
				}
			}
		}
	}
}

// publishing are the permissions of the job that publishes: to create the release, to sign as the workflow, and to
// record the provenance.
var publishing = []string{"contents", "id-token", "attestations"}

// TestJobsAreLimited: a job ends, and may change nothing except where it publishes.
func TestJobsAreLimited(t *testing.T) {
	for name, w := range automated(t) {
		for i, j := range w.Jobs {
			if j.Uses == "" && j.TimeoutMinutes == nil || j.Uses != "" && j.With["minutes"] == nil {
				t.Errorf("%s: job %s has no time limit", name, i)
			}
			for scope, access := range j.Permissions {
				if access != "read" && (name != release || i != "publish" || !slices.Contains(publishing, scope)) {
					t.Errorf("%s: job %s has the permission %s: %s", name, i, scope, access)
				}
			}
		}
		if path.Dir(name) != ".github/workflows" {
			continue
		}
		permissions, ok := w.Permissions.(map[string]any)
		if !ok || len(permissions) > 1 || len(permissions) == 1 && permissions["contents"] != "read" {
			t.Errorf("%s: its permissions are %v, want contents: read or none", name, w.Permissions)
		}
		if name != shared && !strings.Contains(read(t, name), "\nconcurrency:\n") {
			t.Errorf("%s: two runs of a branch may be at work at a time", name)
		}
	}
}

// secrets counts the expressions that hand over what may publish.
func secrets(text string) int {
	return strings.Count(text, "secrets.") + strings.Count(text, "github.token")
}

// TestReleaseIsWhatWasTested: the job that publishes builds and tests nothing, and waits for the one that has tested
// exactly what it gets.
func TestReleaseIsWhatWasTested(t *testing.T) {
	jobs := automated(t)[release].Jobs
	if jobs["publish"].Needs != "build" {
		t.Errorf("the job that publishes waits for %q", jobs["publish"].Needs)
	}
	for name, want := range map[string][]string{"build": {"release-notes", "release"}, "publish": {"publish"}} {
		only := workflow{Jobs: map[string]job{name: jobs[name]}}
		if got := only.calls(); !slices.Equal(got, want) {
			t.Errorf("job %s runs make %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(read(t, release), "make release E2E=1") {
		t.Error("the release is not tested end to end")
	}
}

// TestSecretsReachTheirStep: what runs code of tests must not see what may publish.
func TestSecretsReachTheirStep(t *testing.T) {
	for name, w := range automated(t) {
		inSteps := 0
		for _, s := range w.steps() {
			seen := secrets(strings.Join(slices.Collect(maps.Values(s.Env)), " "))
			if seen > 0 && (name != release || strings.Contains(s.Run, "make release")) {
				t.Errorf("%s: the step %q sees a secret", name, s.Run)
			}
			inSteps += seen
		}
		if all := secrets(read(t, name)); all != inSteps {
			t.Errorf("%s: %d secrets, %d of them in the environment of a step", name, all, inSteps)
		}
	}
}

var (
	imageLine = regexp.MustCompile(`(?m)^\s*(?:image:|ARG [A-Z]+_IMAGE=) ?(\S+)$`)
	byDigest  = regexp.MustCompile(`^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$`)
	fromLine  = regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`)
)

// dockerfiles are those of the repository.
func dockerfiles(t *testing.T) []string {
	t.Helper()
	other := func(name string) bool { return !strings.HasPrefix(path.Base(name), "Dockerfile") }
	return slices.DeleteFunc(tracked(t), other)
}

// TestImagesAreNamedByDigest: in Dockerfiles and workflows. The tag says to people and to Renovate what the digest is.
func TestImagesAreNamedByDigest(t *testing.T) {
	files := append(dockerfiles(t), slices.Collect(maps.Keys(automated(t)))...)
	digests := map[string]string{}
	for _, file := range files {
		for _, match := range imageLine.FindAllStringSubmatch(read(t, file), -1) {
			tag, digest, _ := strings.Cut(match[1], "@")
			if !byDigest.MatchString(match[1]) {
				t.Errorf("%s: %s is not of the form image:tag@sha256:<64 hexadecimal digits>", file, match[1])
			}
			if other, known := digests[tag]; known && other != digest {
				t.Errorf("%s: %s is %s, elsewhere %s", file, tag, digest, other)
			}
			digests[tag] = digest
		}
	}
	if len(digests) < 3 {
		t.Errorf("only %d images found; the pattern is out of date", len(digests))
	}
	for _, file := range dockerfiles(t) {
		text := read(t, file)
		for _, match := range fromLine.FindAllStringSubmatch(text, -1) {
			name := strings.Trim(match[1], "${}")
			if match[1] != "scratch" && !strings.Contains(text, "\nARG "+name+"=") {
				t.Errorf("%s: FROM %s: give it a name with ARG, and a digest", file, match[1])
			}
		}
	}
}
