//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
)

// candidate is a kind of announcer: a program on each node.
type candidate struct {
	// name is that in figures.
	name string
	// command is the program of a node.
	command func(i int) (argv, env []string)
	// clean removes what killed programs have left; it is called while none runs.
	clean func(ctx context.Context) error
	// complete reports whether all nodes take part; nil where that shows nowhere.
	complete func(ctx context.Context) bool
}

// fleet is the running programs of a candidate.
type fleet struct {
	candidate candidate
	nodes     []*space.Space
	dir       string
	programs  []*exec.Cmd
	// replaced are programs beside which another one was started, groups what limits programs.
	replaced []*exec.Cmd
	groups   []group
	kubelets *kubelets
}

// start starts the program on every node.
func (f *fleet) start() error {
	f.programs = make([]*exec.Cmd, len(f.nodes))
	for i := range f.nodes {
		cmd, err := f.run(i)
		if err != nil {
			return err
		}
		f.programs[i] = cmd
	}
	return nil
}

// run starts the program of a node.
func (f *fleet) run(i int) (*exec.Cmd, error) {
	node := f.nodes[i]
	log, err := os.OpenFile(f.log(i), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	argv, env := f.candidate.command(i)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it is ended by a fault, or by stop
	cmd.Env = append(node.Environment(), env...)
	cmd.Stdout = log
	cmd.Stderr = log
	if err = errors.Join(node.Start(cmd), log.Close()); err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", f.candidate.name, node.Name, err)
	}
	return cmd, nil
}

func (f *fleet) log(i int) string {
	return filepath.Join(f.dir, f.candidate.name+"-"+f.nodes[i].Name+".log")
}

// update starts another program beside that of a node, and ends the earlier one when the later is ready.
func (f *fleet) update(i int) error {
	before, err := f.ready(i)
	if err != nil {
		return err
	}
	next, err := f.run(i)
	if err != nil {
		return err
	}
	earlier := f.programs[i]
	f.replaced = append(f.replaced, earlier)
	f.programs[i] = next
	for begun := time.Now(); time.Since(begun) < calmLimit; <-time.After(50 * time.Millisecond) {
		now, err := f.ready(i)
		if err != nil {
			return err
		}
		if now > before {
			return earlier.Process.Signal(syscall.SIGTERM)
		}
	}
	return fmt.Errorf("no later agent on %s is ready within %s", f.nodes[i].Name, calmLimit)
}

// ready counts the agents of a node that were ready to continue in place of another one.
func (f *fleet) ready(i int) (int, error) { return f.logged(i, "Ready to continue") }

// moves are what the programs have logged.
type moves struct {
	// takeovers counts how often a node began to answer for the address of another one, lapses how often its owner
	// stopped because no majority acknowledged it.
	takeovers, lapses int
}

func (f *fleet) moves() (m moves, err error) {
	for i := range f.nodes {
		taken, err := f.logged(i, `predecessor="node-`)
		if err != nil {
			return m, err
		}
		lapsed, err := f.logged(i, "Stopped answering: no majority")
		if err != nil {
			return m, err
		}
		m.takeovers += taken
		m.lapses += lapsed
	}
	return m, nil
}

// logged counts a text in the log of a node.
func (f *fleet) logged(i int, text string) (int, error) {
	raw, err := os.ReadFile(f.log(i))
	return strings.Count(string(raw), text), err
}

// signal sends a signal to the program of a node.
func (f *fleet) signal(i int, signal syscall.Signal) error {
	if err := f.programs[i].Process.Signal(signal); err != nil {
		return fmt.Errorf("signal %s on %s: %w", f.candidate.name, f.nodes[i].Name, err)
	}
	return nil
}

// stop kills every program and removes what they have left.
func (f *fleet) stop(ctx context.Context) error {
	for _, p := range append(f.programs, f.replaced...) {
		if p != nil {
			_ = p.Process.Kill() // one that has ended already
			_ = p.Wait()         // how it ended was decided here
		}
	}
	f.programs = nil
	f.replaced = nil
	var err error
	for _, g := range f.groups {
		err = errors.Join(err, g.remove())
	}
	f.groups = nil
	for i := range f.nodes {
		f.kubelets.set(i, true)
	}
	return errors.Join(err, f.candidate.clean(ctx))
}

// fault is what happens to the node that announces the address.
type fault struct {
	// name is the name in figures, what describes it in words.
	name, what string
	make       func(ctx context.Context, s *segment, f *fleet, i int) error
	// twoAnswer reports that the address may stay behind, so that two machines answer.
	twoAnswer bool
	// stays reports that the address must stay where it is.
	stays bool
	// wakes reports that the program continues after the takeover.
	wakes bool
	// slow reports that it is made less often, because it takes a minute.
	slow bool
	// once reports that it is made once, because it lasts for minutes.
	once bool
}

// times is how often a fault is made where others are made a number of times.
func (f fault) times(n int) int {
	switch {
	case f.once:
		return min(n, 1)
	case f.slow:
		return (n + 3) / 4
	default:
		return n
	}
}

// powerOff ends a node: its processes stop, its port and its kubelet with them.
func powerOff(s *segment, f *fleet, i int) error {
	f.kubelets.set(i, false)
	return errors.Join(s.cut(i, true), f.signal(i, syscall.SIGSTOP))
}

// powerOffAll ends all nodes; one of them, which is another than the owner of the address, starts again.
func powerOffAll(_ context.Context, s *segment, f *fleet, owner int) error {
	for i := range f.nodes {
		if err := powerOff(s, f, i); err != nil {
			return err
		}
	}
	back := (owner + 1) % len(f.nodes)
	if err := f.signal(back, syscall.SIGKILL); err != nil {
		return err
	}
	f.replaced = append(f.replaced, f.programs[back])
	f.kubelets.set(back, true)
	next, err := f.run(back)
	if err != nil {
		return err
	}
	f.programs[back] = next
	return s.cut(back, false)
}

// FaultNames are the names of all faults, as figures have them.
func FaultNames() (names []string) {
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

// faults are all of them.
func faults() []fault {
	return []fault{
		{name: "node_dead", what: "all its processes stopped and its port cut at once",
			make: func(_ context.Context, s *segment, f *fleet, i int) error {
				return errors.Join(s.cut(i, true), f.signal(i, syscall.SIGSTOP))
			}},
		{name: "killed", what: "its announcer killed", twoAnswer: true,
			make: func(_ context.Context, _ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGKILL) }},
		{name: "stopped", what: "its announcer stopped, and going on later", twoAnswer: true, wakes: true,
			make: func(_ context.Context, _ *segment, f *fleet, i int) error {
				return f.signal(i, syscall.SIGSTOP)
			}},
		{name: "vlan_cut", what: "its port cut, the API server still reached",
			make: func(_ context.Context, s *segment, _ *fleet, i int) error { return s.cut(i, true) }},
		{name: "drained", what: "its announcer asked to end",
			make: func(_ context.Context, _ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGTERM) }},
		{name: "two_of_three", what: "it and the next one without power at once", slow: true,
			make: func(_ context.Context, s *segment, f *fleet, i int) error {
				return errors.Join(powerOff(s, f, i), powerOff(s, f, (i+1)%len(f.nodes)))
			}},
		{name: "all_power_lost", what: "all without power, and one of the others back", slow: true, make: powerOffAll},
		{name: "busy", what: "all busy for ten minutes", stays: true, once: true, make: busy},
		{name: "agents_updated", what: "its announcer updated, and then those of the others", stays: true,
			make: func(_ context.Context, _ *segment, f *fleet, i int) error {
				for n := range f.nodes {
					if err := f.update((i + n) % len(f.nodes)); err != nil {
						return err
					}
				}
				return nil
			}},
	}
}
