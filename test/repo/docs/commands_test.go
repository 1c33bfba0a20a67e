package docs

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestCommandsOfThePagesWork tries it against a real API server on which this project is installed.
func TestCommandsOfThePagesWork(t *testing.T) {
	bench := newBench(t)
	t.Run("mistakes", bench.mistakes)
	t.Run("commands", bench.commands)
	t.Run("manifests", bench.manifests)
}

// commands gives every command of README and docs to the program that it is for: kubectl runs (changes as a dry run of
// the server), ours read their flags, targets of make and packages of Go have to exist.
func (b *bench) commands(t *testing.T) {
	asked := map[string]int{}
	done := map[string]bool{}
	for _, s := range snippets(t) {
		words := s.words
		if words[0] == "sudo" {
			words = words[1:]
		}
		key := strings.Join(words, "\x00")
		if done[key] {
			continue
		}
		done[key] = true
		asked[programOf(words[0])]++
		if problem := b.problem(t, words); problem != "" {
			t.Errorf("%s: %s: %s", s.page, strings.Join(s.words, " "), problem)
		}
	}
	for program, least := range map[string]int{"kubectl": 40, "agent": 8, "make": 8, "go": 5, "helm": 1} {
		if asked[program] < least {
			t.Errorf("only %d commands of %s found; the pattern is out of date", asked[program], program)
		}
	}
}

// problem says why a command does not do what a page prints it for; empty when it does.
func (b *bench) problem(t *testing.T, words []string) string {
	t.Helper()
	switch program := programOf(words[0]); program {
	case "kubectl":
		return b.kubectl(t, words[1:])
	case "agent", "controller":
		return b.flags(t, program, words[1:])
	case "make":
		return b.target(t, words[1:])
	case "go":
		return b.goCommand(t, words[1:])
	case "docker":
		return b.image(t, words[1:])
	case "helm":
		args, problem := fromRegistry(t, words[1:])
		if problem != "" {
			return problem
		}
		return helm(t, args)
	default:
		return misspelt(program)
	}
}

// mistakes are commands as pages have them, each right and with a mistake that is found.
func (b *bench) mistakes(t *testing.T) {
	const chart = "deploy/helm/phoenixnap-cloud-provider --namespace kube-system"
	const published = "helm upgrade --install x --namespace kube-system " +
		"oci://registry-1.docker.io/phoenixnap/phoenixnap-"
	version := nextVersion(t)
	downloads := "kubectl apply -f https://github.com/phoenixnap/k8s-cloud-provider-bmc/releases/download/"
	for right, wrong := range map[string][]string{
		"go test ./agent/announce/election -run TestScale -v": {
			"go test ./agent/announce/election -run TestScales", "go test ./agent/announce/elections",
			"go test ./agent/announce/election -verbose"},
		"go test -tags e2e ./test/scenario/e2e -run TestInstall": {"go test ./test/scenario/e2e -run TestInstall"},
		"go run ./test/bench/agent/cmd/agentbench":               {"go run ./test/bench/agent/cmd/bench"},
		"go run ./test/scenario/faults/cmd/faults --only x": {
			"go run ./test/scenario/faults/cmd/faults --just x", "go run ./test/scenario/faults/cmd/faults --report"},
		"go run ./controller --dry-run": {"go run ./controller --dryrun"},
		"make demo KEEP=1":              {"make demos KEEP=1", "make demo KEP=1"},
		"make mutants ARGS='-only x'":   {"make mutants ARGS='-olny x'"},
		"make run-local ARGS=--dry-run": {"make run-local ARGS=--dryrun"},
		"kubectl get nodes -o wide":     {"kubectl get nodez", "kubectl get nodes --wide", "kubectl gett nodes"},
		"kubectl pnap status -o json": {"kubectl pnap status --jsn", "kubectl pnap statsu",
			"kubectl pnap status -o jsn"},
		"phoenixnap-agent diagnose --node-name a -o json": {"phoenixnap-agent diagnose --node a",
			"phoenixnap-agent diagnos", "phoenixnap-agent diagnose -o jsn", "phoenixnap-agent diagnose --vlan x",
			"phoenixnap-agnt diagnose"},
		"kubectl -n kube-system exec ds/phoenixnap-agent -- phoenixnap-agent diagnose": {
			"kubectl -n kube-system exec ds/phoenixnap-agent -- phoenixnap-agent diagnose --bogus"},
		"phoenixnap-agent run --manage=vlan --node-name a": {"phoenixnap-agent run --manage=vlna"},
		"phoenixnap-cloud-controller-manager --dry-run": {"phoenixnap-cloud-controller-manager --dryrun",
			"phoenixnap-cloud-controller --dry-run", "phoenixnap-cloud-controller-manager run"},
		"helm upgrade --install x " + chart: {"helm upgrade --install x s" + chart,
			"helm upgrade --install x --set bogus=1 " + chart, "helm upgrad --install x " + chart},
		published + "cloud-provider --set controller.replicas=1 --version " + version[1:]: {
			published + "provider", published + "cloud-provider --set bogus=1",
			published + "cloud-provider --version 1.0.0", published + "cloud-provider --version=" + version},
		downloads + version + "/k3s-single.yaml": {downloads + version + "/k3s-singel.yaml",
			downloads + version + "/deployment.yaml", downloads + "v1.0.0/k3s-single.yaml"},
	} {
		for i, command := range append([]string{right}, wrong...) {
			commands, err := shellCommands(command)
			must(t, err)
			if problem := b.problem(t, commands[0]); (problem != "") != (i > 0) {
				t.Errorf("%s: %q, want a problem: %t", command, problem, i > 0)
			}
		}
	}
}

// programOf names the program of a path.
func programOf(path string) string {
	base := filepath.Base(path)
	switch {
	case strings.HasPrefix(base, "phoenixnap-agent"):
		return "agent"
	case strings.HasPrefix(base, "phoenixnap-cloud-controller-manager"):
		return "controller"
	default:
		return base
	}
}

// misspelt finds names that are nearly those of programs whose commands are tried. Programs of others are not checked.
func misspelt(program string) string {
	for _, known := range []string{"kubectl", "phoenixnap-agent", "phoenixnap-cloud-controller-manager", "docker"} {
		if program != known && distance(program, known) <= 2 {
			return "is " + known + " meant?"
		}
	}
	if strings.HasPrefix(program, "phoenixnap") {
		return "the project has no such program"
	}
	return ""
}

// distance counts the letters that have to be added, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func TestMisspelt(t *testing.T) {
	for program, want := range map[string]bool{
		"kubectl": false, "kubelet": false, "kubeadm": false, "podman": false, "jq": false,
		"kubeclt": true, "kubctl": true, "dokcer": true, "phoenixnap-aget": true, "phoenixnap-controller": true,
	} {
		if got := misspelt(program); (got != "") != want {
			t.Errorf("misspelt(%q) = %q, want a complaint: %t", program, got, want)
		}
	}
}

// flags has one of our programs read its command and flags; --help keeps it from doing anything.
func (b *bench) flags(t *testing.T, program string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.programs[program], append(slices.Clone(args), "--help")...).CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return cmp.Or(commandIn(program, args, string(out)), choiceIn(args, string(out)))
}

// commandIn says what is wrong with the first argument that is no flag: that of the controller is always wrong, others
// are commands, which the help shows.
func commandIn(program string, args []string, help string) string {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	name := map[string]string{"agent": "phoenixnap-agent", "pnap": "kubectl pnap"}[program]
	if at >= 0 && (name == "" || !strings.Contains(help, "  "+name+" "+args[at]+" ")) {
		return "there is no command " + args[at]
	}
	return ""
}

// choices are the flags whose help names all values.
var choices = map[string]string{"-o": "output", "--output": "output", "--manage": "manage"}

// choiceIn says which value a flag does not take.
func choiceIn(args []string, help string) string {
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if choices[name] == "" || !given && i+1 == len(args) {
			continue
		}
		if !given {
			value = args[i+1]
		}
		line := regexp.MustCompile(`(?m)^.*--` + choices[name] + ` string.*$`).FindString(help)
		for each := range strings.SplitSeq(value, ",") {
			if !slices.Contains(regexp.MustCompile(`[a-z-]+`).FindAllString(line, -1), each) {
				return name + " does not take " + each
			}
		}
	}
	return ""
}

// image holds a run of our image against the manifests, and has the program read the flags behind it.
func (b *bench) image(t *testing.T, args []string) string {
	t.Helper()
	at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "phoenixnap/") })
	if at < 0 {
		return "no image of ours is named"
	}
	name, tag, _ := strings.Cut(args[at], ":")
	manifests := corpus(t, []string{".yaml"}, "", "deploy/base")
	if !strings.Contains(manifests, "image: "+name+"\n") || !strings.Contains(manifests, "newTag: "+tag+"\n") {
		return "deploy/base has no image " + args[at]
	}
	return b.flags(t, programOf(name), args[at+1:])
}

// helm renders what would be installed.
func helm(t *testing.T, args []string) string {
	t.Helper()
	program, err := tools.Binary(t.Context(), "helm")
	if err != nil {
		t.Fatal(err)
	}
	rendering := append([]string{"template", "--kube-version", tools.Minors()[0] + ".0"}, args[min(2, len(args)):]...)
	if args[0] != "upgrade" || !slices.Contains(args, "--install") {
		rendering = append(slices.Clone(args), "--help") // it reads command and flags
	}
	cmd := exec.CommandContext(t.Context(), program, rendering...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		return err.Error() + ": " + string(out)
	}
	return ""
}

// arguments are the programs of the Makefile that are handed $(ARGS).
var arguments = regexp.MustCompile(`(?m)^\t@?(go run \./\S+|\./controller/run-local)\b.* \$\(ARGS\)$`)

// arguments has the program that a target of make runs read the words of ARGS.
func (b *bench) arguments(t *testing.T, makefile, name, value string) string {
	t.Helper()
	_, recipe, _ := strings.Cut(makefile, "\n"+name+":")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	found := arguments.FindStringSubmatch(strings.ReplaceAll(recipe, "\\\n\t\t", ""))
	commands, err := shellCommands(value)
	switch {
	case err != nil:
		return err.Error()
	case found == nil:
		return "make " + name + " has no use for ARGS"
	case len(commands) == 0:
		return ""
	case strings.HasPrefix(found[1], "go run "):
		return b.goCommand(t, append(strings.Fields(found[1])[1:], commands[0]...))
	}
	return b.flags(t, "controller", commands[0])
}

// target finds the target of a make command in the Makefile.
func (b *bench) target(t *testing.T, args []string) string {
	t.Helper()
	makefile := read(t, "Makefile")
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if name, value, ok := strings.Cut(arg, "="); ok {
			if name == "ARGS" {
				if problem := b.arguments(t, makefile, args[0], value); problem != "" {
					return problem
				}
			}
			if !regexp.MustCompile(`\$\(` + name + `[):]|\b` + name + ` \?=|\(if \$\(` + name +
				`\)`).MatchString(makefile) {
				return "the Makefile has no use for the variable " + name
			}
			continue
		}
		if !strings.Contains(makefile, "\n"+arg+":") {
			return "the Makefile has no target " + arg
		}
	}
	return ""
}

// goCommand finds the packages, flags and tests that a go command names.
func (b *bench) goCommand(t *testing.T, args []string) string {
	t.Helper()
	if of := strings.TrimPrefix(args[min(1, len(args)-1)], "./"); args[0] == "run" && b.programs[of] != "" {
		return b.flags(t, of, args[2:])
	}
	if args[0] == "test" {
		return goTest(t, root, args[1:])
	}
	for i, arg := range args {
		if !strings.HasPrefix(arg, "./") || slices.Contains(args[:i], "--help") {
			continue
		}
		dir := strings.TrimSuffix(strings.TrimSuffix(arg, "..."), "/")
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
			return "there is no " + dir
		}
		if args[0] == "run" {
			return goFlags(t, dir, args[i+1:])
		}
	}
	return ""
}

// goFlags finds the flags of a program of the project in its source.
func goFlags(t *testing.T, dir string, args []string) string {
	t.Helper()
	source := corpus(t, []string{".go"}, "_test.go", dir)
	for _, arg := range args {
		if name := strings.TrimLeft(arg, "-"); name != arg {
			name, _, _ = strings.Cut(name, "=")
			if !strings.Contains(source, `"`+name+`"`) {
				return dir + " has no flag " + arg
			}
		}
	}
	return ""
}
