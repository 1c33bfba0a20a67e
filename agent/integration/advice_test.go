package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/examination"
)

// maxRounds is how often a person looks again before they give up.
const maxRounds = 6

// TestAdviceMends does what a diagnosis says, for every fault that commands on the node mend at once: look, run the commands
// of the first cause, look again. In the end the node must be sound.
func TestAdviceMends(t *testing.T) {
	mended, tried := 0, map[string]bool{}
	var s *server
	for _, f := range slices.Concat(linkFaults(), addressFaults(), wireFaults(), kernelFaults(), routeFaults()) {
		if tried[f.reason] || slices.Contains(beyondCommands, f.reason) || slices.Contains(beyondCommands, f.name) {
			continue
		}
		tried[f.reason] = true
		// Rules and tables that advice adds are not those that another row deletes.
		if s == nil || f.id == check.ReversePath || f.id == check.ReturnPath || f.id == check.ServiceReplies || f.id == check.RoutingTables {
			s = newServer(t)
			s.asker.Interval = 50 * time.Millisecond
			s.sound(patience)
		}
		f.make(s)
		s.settle(patience, func(first check.Finding, _ bool) bool { return first.Reason == f.reason })
		if s.mendByAdvice(f.name) {
			mended++
		} else {
			s = nil
		}
	}
	if t.Logf("%d faults were mended by advice alone", mended); mended < 25 {
		t.Errorf("%d faults were mended by advice alone, want 25 at least", mended)
	}
}

// beyondCommands are the reasons, and the names of rows, that no command on the node mends at once: cables, other machines,
// mistakes in options, routes of others that a person has to look at first.
var beyondCommands = []string{
	"UplinkMissing", "UplinkNoCarrier", "BondDegraded", "UnexpectedBondMode", "NoLACPPartner", "NotAVLANInterface", "AddressNotRegistered",
	"AddressInUse", "GatewaySilent", "GatewayAnsweredTwice", "GatewaySlow", "ARPSourceForeign", "MarkClash",
	"GatewayUnroutable", "half of the Internet elsewhere",
}

// mendByAdvice does what diagnoses say until there is nothing more to be said.
func (s *server) mendByAdvice(name string) bool {
	s.t.Helper()
	for range maxRounds {
		d := s.diagnose()
		if d.Result.Status == check.OK {
			return true
		}
		if err := s.follow(d); err != nil {
			s.t.Errorf("%s: %v\nas told by\n%s", name, err, text(s.t, d))
			return false
		}
		// A bond takes its time to notice.
		s.settle(time.Second, func(first check.Finding, found bool) bool { return !found || first.ID != d.Result.FirstCause })
	}
	s.t.Errorf("%s: after %d rounds:\n%s", name, maxRounds, text(s.t, s.diagnose()))
	return false
}

func (s *server) examiner() *examination.Examiner {
	return examination.New(examination.Config{Node: "srv-a", ByHand: &s.expected, Reader: s.reader, Asker: s.asker, Timeout: time.Second})
}

// diagnose looks as a person on the node does, and holds the text against what a terminal shows.
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
			return fix.Tool != tool || !slices.ContainsFunc(fix.Commands, func(c string) bool { return strings.HasPrefix(c, program) })
		})
	}
	if fixes := of(check.IPRoute2, ""); len(fixes) > 0 {
		return fixes
	}
	return of(check.AnyTool, "sysctl ")
}

// follow does what is said of the first cause.
func (s *server) follow(d diagnose.Document) error {
	for _, f := range d.Findings {
		if f.ID != d.Result.FirstCause || f.Status != d.Result.Status {
			continue
		}
		fixes := remedies(f)
		if len(fixes) == 0 {
			return fmt.Errorf("no command mends %s %s", f.ID, f.Reason)
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
		if out, err := exec.CommandContext(s.t.Context(), "sh", "-c", program+" "+arguments).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	return nil
}
