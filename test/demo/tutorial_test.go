//go:build linux

package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestTutorial types what the tutorial says on the servers of the lab, and expects to see what it shows. At its end the
// account is as it was before.
func TestTutorial(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.New(cluster.Options{Dir: t.TempDir(), Scale: 10,
		ControllerFlags: []string{"--leader-elect=true"}})
	must(t, err)
	defer func() { must(t, c.Stop()) }()
	for _, start := range []func(context.Context) error{
		c.StartAccount, c.StartControlPlane, c.StartServers, c.JoinServers,
	} {
		must(t, start(ctx))
	}
	before, err := c.Sim.State(ctx)
	must(t, err)
	reader := &follower{Cluster: c, T: t}
	// The API server gives it to every new Node, and Kubernetes takes it away once the Node is ready.
	_, err = reader.output(ctx, "kubectl taint nodes --all node.kubernetes.io/not-ready-")
	must(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md"))
	must(t, err)
	if typed := reader.follow(ctx, string(page)); typed < 12 {
		t.Errorf("the tutorial has %d commands; the pattern is out of date", typed)
	}
	after, err := c.Sim.State(ctx)
	must(t, err)
	if len(before.Blocks) != 1 || len(after.Blocks) != 1 || after.Blocks[0].ID != before.Blocks[0].ID {
		t.Errorf("the account had %+v and has %+v", before.Blocks, after.Blocks)
	}
}

// follower is a person who follows the tutorial.
type follower struct {
	*cluster.Cluster
	*testing.T
}

var shown = regexp.MustCompile("(?ms)^ *```(sh|console)\n(.*?)^ *```$")

// follow types the commands of the page in their order, and returns how many there are.
func (f *follower) follow(ctx context.Context, page string) int {
	f.Helper()
	typed := 0
	for _, block := range shown.FindAllStringSubmatch(page, -1) {
		text := strings.TrimSpace(block[2])
		if block[1] == "sh" {
			for command := range strings.SplitSeq(text, "\n") {
				must(f.T, f.change(ctx, strings.TrimSpace(command)))
				typed++
			}
			continue
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(text, "$ "), "\n$ ") {
			command, want, _ := strings.Cut(part, "\n")
			if err := f.see(ctx, command, want); err != nil {
				f.Error(err) // and go on: whoever updates the page needs all that is printed now
			}
			typed++
		}
	}
	return typed
}

// change does what a command without output does. Nothing in the lab makes pods of Deployments and DaemonSets, so their
// programs are started on its servers.
func (f *follower) change(ctx context.Context, command string) error {
	command, _, _ = strings.Cut(command, " #")
	switch command = strings.TrimSpace(command); command {
	case "cp deploy/template/secret.yaml secret.yaml":
		return nil
	case "kubectl apply -f secret.yaml": // the lab's controller has its secret in a file
		return nil
	case "kubectl apply -k deploy/crds":
		return nil
	case "kubectl apply -k deploy/overlays/kubeadm": // as everything of deploy, the control plane has it already
		return errors.Join(f.StartController(ctx), f.StartAgents(ctx))
	case "kubectl apply -f deploy/kube-vip/kube-vip.yaml":
		return f.SuperviseKubeVIP(ctx)
	case "kubectl create deployment web --image=nginx --replicas=2":
		_, err := f.output(ctx, command)
		return errors.Join(err, f.CreateEndpoints(ctx, "")) // kubectl expose does not name the port
	default:
		return fmt.Errorf("%q is no command that the lab knows: one whose output the page shows is a console", command)
	}
}

// see types a command until it prints what the page shows; one that changes something is typed once.
func (f *follower) see(ctx context.Context, command, want string) error {
	if regexp.MustCompile(`^kubectl (expose|delete) `).MatchString(command) {
		got, err := f.output(ctx, command)
		f.Logf("$ %s\n%s", command, got)
		if problem := differs(want, got); err == nil && problem != "" {
			err = fmt.Errorf("%s: %s", command, problem)
		}
		return err
	}
	look := f.output
	switch {
	case strings.HasSuffix(command, " --watch"):
		look = func(ctx context.Context, command string) (string, error) { return f.watch(ctx, command, want) }
	case strings.HasPrefix(command, "curl "):
		look = f.curl
	}
	last := ""
	_, err := until(ctx, 3*time.Minute, command, func(ctx context.Context) (bool, string, error) {
		got, err := look(ctx, command)
		if err != nil {
			return false, "", err
		}
		last = got
		problem := differs(want, got)
		return problem == "", problem, nil
	})
	f.Logf("$ %s\n%s", command, last)
	return err
}

// command is the program that a command of the page means, for the cluster of the lab.
func (f *follower) command(ctx context.Context, line string) (*exec.Cmd, error) {
	args := words(line)
	if args[0] != "kubectl" {
		return nil, fmt.Errorf("the lab does not know %s", args[0])
	}
	find := func() (string, error) { return tools.Binary(ctx, "kubectl") }
	args = args[1:]
	if args[0] == "pnap" {
		find = func() (string, error) { return tools.Product(ctx, "./controller/kubectl-pnap") }
		args = args[1:]
	}
	program, err := find()
	if err != nil {
		return nil, fmt.Errorf("find the program of %q: %w", line, err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.AdminKubeconfig(), "HOME="+f.TempDir())
	return cmd, nil
}

// words are those of a command, without the quotes around them.
func words(line string) []string {
	var all []string
	for _, word := range regexp.MustCompile(`(?:'[^']*'|[^\s'])+`).FindAllString(line, -1) {
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}

// output is what a command prints. kubectl pnap ends with an error when it shows a problem.
func (f *follower) output(ctx context.Context, line string) (string, error) {
	cmd, err := f.command(ctx, line)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return string(out), nil
}

// watch reads what a command prints until it is what is wanted, or nothing more comes for a while.
func (f *follower) watch(ctx context.Context, line, want string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd, err := f.command(ctx, line)
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	var got bytes.Buffer
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&got, lines.Text())
		if differs(want, got.String()) == "" {
			break
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
	return got.String(), nil
}

// curl asks as the client beyond the gateway, and prints what -w '%{http_code}\n' does.
func (f *follower) curl(ctx context.Context, line string) (string, error) {
	args := words(line)
	probe, err := f.Lab.StartProbe(ctx, lab.Probe{
		URL: args[len(args)-1], Interval: probeInterval, Timeout: probeTimeout,
	})
	if err != nil {
		return "", fmt.Errorf("ask from the client: %w", err)
	}
	_, err = until(ctx, time.Minute, line, func(ctx context.Context) (bool, string, error) {
		attempts, err := f.Lab.ProbeResults(ctx, probe)
		return slices.ContainsFunc(attempts, func(a lab.Attempt) bool { return a.OK }), "no answer", err
	})
	if _, stopped := f.Lab.StopProbe(ctx, probe); err != nil || stopped != nil {
		return "", errors.Join(err, stopped)
	}
	return "200\n", nil // what a probe takes for an answer
}

// varying is what differs from run to run, and what stands in its place.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)([0-9]+[smh])?$|^<invalid>$`), "AGE"},
	{regexp.MustCompile(`\b[0-9a-f]{24}\b`), "ID"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "CLUSTER-IP"},
	{regexp.MustCompile(`^80:\d+/TCP$`), "80/TCP"},
	{regexp.MustCompile(`\bv1\.\d+\.\d+\b`), "VERSION"},
	{regexp.MustCompile(`\bsrv-[ab]\b`), "SERVER"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
}

// alike makes lines that differ only by what varies equal. The same line several times in a row is one: a watch prints
// one for each change of the object, also of what it does not show.
func alike(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		all := strings.Fields(line)
		for i := range all {
			for _, v := range varying {
				if v.name == "SERVER" && i == 0 {
					continue // the row of that server
				}
				all[i] = v.pattern.ReplaceAllString(all[i], v.name)
			}
		}
		if len(all) > 0 {
			lines = append(lines, strings.Join(all, " "))
		}
	}
	return slices.Compact(lines)
}

// differs says what of the page a command did not print; empty when it printed it. The page may leave lines out, with
// "…" in their place.
func differs(page, printed string) string {
	want := alike(page)
	got := alike(printed)
	if !slices.Contains(want, "…") {
		if slices.Equal(want, got) {
			return ""
		}
		return fmt.Sprintf("the page shows\n%s\nand printed is\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	for _, line := range want {
		if line != "…" && !slices.Contains(got, line) {
			return fmt.Sprintf("the page shows %q, which is not in\n%s", line, strings.Join(got, "\n"))
		}
	}
	return ""
}

func TestDiffers(t *testing.T) {
	const printed = "NAME  AGE\nweb   12s\nweb   13s\nother 1m5s\n"
	for page, equal := range map[string]bool{
		"NAME AGE\nweb 3s\nother 2m": true,
		"NAME AGE\nweb 3s":           false,
		"…\nother 4d\n…":             true,
		"…\nanother 4d":              false,
		"NAME AGE\nother 2m\nweb 3s": false,
	} {
		if got := differs(page, printed); (got == "") != equal {
			t.Errorf("%q: %q, want it to be shown: %t", page, got, equal)
		}
	}
	want := []string{"kubectl", "get", "-o", "jsonpath={.a b}", "x"}
	if got := words(`kubectl get -o 'jsonpath={.a b}' x`); !slices.Equal(got, want) {
		t.Errorf("words %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
