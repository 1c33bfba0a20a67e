//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose/examine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// maxRounds is how often a user diagnoses again before giving up.
const maxRounds = 6

// TestAdviceRepairs follows a diagnosis for faults that commands on the node fix at once: diagnose, run the commands of
// the first cause, diagnose again. In the end the node must be healthy. Every run takes some of the faults, a long one
// all.
func TestAdviceRepairs(t *testing.T) {
	rows := slices.DeleteFunc(slices.Concat(linkFaults(), addressFaults(), wireFaults(), kernelFaults(), routeFaults()),
		func(f fault) bool {
			return slices.Contains(beyondCommands, f.reason) || slices.Contains(beyondCommands, f.name)
		})
	if len(rows) < 25 {
		t.Fatalf("only %d faults are fixed by commands", len(rows))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	rows = rows[:min(len(rows), seeds.Count(t, 10))]
	for _, f := range rows {
		s := newServer(t)
		s.prober.Interval = 50 * time.Millisecond
		s.sound(patience)
		f.make(s)
		s.settle(patience, func(first check.Finding, _ bool) bool { return first.Reason == f.reason })
		s.repairByAdvice(f.name)
	}
	t.Logf("%d faults were fixed only by advice", len(rows))
}

// beyondCommands are the reasons, and the names of rows, that no command on the node fixes at once: cables, other
// machines, mistakes in options, routes of others that an administrator has to check first.
var beyondCommands = []string{
	"UplinkMissing", "UplinkNoCarrier", "BondDegraded", "UnexpectedBondMode", "NoLACPPartner", "NotAVLANInterface",
	"AddressNotRegistered",
	"AddressInUse", "GatewaySilent", "GatewayAnsweredTwice", "GatewaySlow", "ARPSourceForeign", "MarkClash",
	"GatewayUnroutable", "block taken by a route", "half of the Internet elsewhere",
}

// repairByAdvice does what diagnoses say until there is nothing more to be said.
func (s *server) repairByAdvice(name string) {
	s.t.Helper()
	for range maxRounds {
		d := s.diagnose()
		if d.Result.Status == check.OK {
			return
		}
		if err := s.follow(d); err != nil {
			s.t.Errorf("%s: %v\nas advised by\n%s", name, err, text(s.t, d))
			return
		}
		// A bond takes its time to notice.
		s.settle(limits.Wait, func(first check.Finding, found bool) bool {
			return !found ||
				first.ID != d.Result.FirstCause
		})
	}
	s.t.Errorf("%s: after %d rounds:\n%s", name, maxRounds, text(s.t, s.diagnose()))
}

func (s *server) examiner() *examine.Examiner {
	return examine.New(examine.Config{Node: "srv-a", ByHand: &s.expected, Reader: s.reader, Prober: undelayed{s.prober},
		Timeout: limits.Wait})
}

// diagnose runs the diagnosis as a user on the node does, and checks that the text fits a terminal.
func (s *server) diagnose() diagnose.Document {
	s.t.Helper()
	e := s.examiner()
	e.Interface = s.expected.Interface
	d, err := e.Examine(s.t.Context())
	s.must("examine", err)
	for line := range strings.Lines(text(s.t, d)) {
		if strings.HasPrefix(strings.TrimSpace(line), "cause") && utf8.RuneCountInString(line) > 81 {
			s.t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	return d
}

func text(t *testing.T, d diagnose.Document) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Text(&b, diagnose.Style{Unicode: true}, ""); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// remedies are the fixes of a finding that change the node at once: iproute2's, else settings of the kernel.
func remedies(f check.Finding) []check.Fix {
	of := func(tool check.Tool, program string) []check.Fix {
		return slices.DeleteFunc(slices.Clone(f.Fixes), func(fix check.Fix) bool {
			return fix.Tool != tool || !slices.ContainsFunc(fix.Commands,
				func(c string) bool { return strings.HasPrefix(c, program) })
		})
	}
	if fixes := of(check.IPRoute2, ""); len(fixes) > 0 {
		return fixes
	}
	return of(check.AnyTool, "sysctl ")
}

// follow carries out the advice on the first cause.
func (s *server) follow(d diagnose.Document) error {
	for _, f := range d.Findings {
		if f.ID != d.Result.FirstCause || f.Status != d.Result.Status {
			continue
		}
		fixes := remedies(f)
		if len(fixes) == 0 {
			return fmt.Errorf("no command fixes %s %s", f.ID, f.Reason)
		}
		for _, fix := range fixes {
			if err := s.apply(fix); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) apply(fix check.Fix) error {
	if fix.File != "" {
		if err := os.MkdirAll(filepath.Dir(fix.File), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(fix.File, []byte(fix.Content), 0o600); err != nil {
			return err
		}
		s.t.Cleanup(func() { _ = os.Remove(fix.File) })
	}
	for _, command := range fix.Commands {
		name, arguments, _ := strings.Cut(command, " ")
		// A shell of busybox would take its own programs, which can do less.
		program, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		// The shell is in the namespace of the test's thread.
		if out, err := exec.CommandContext(s.t.Context(), "sh", "-c",
			program+" "+arguments).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	return nil
}
