//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/space"
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
}

// start starts the program on every node.
func (f *fleet) start() error {
	f.programs = make([]*exec.Cmd, len(f.nodes))
	for i, node := range f.nodes {
		log, err := os.OpenFile(filepath.Join(f.dir, f.candidate.name+"-"+node.Name+".log"),
			os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		argv, env := f.candidate.command(i)
		cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it is ended by a fault, or by stop
		cmd.Env = append(node.Environment(), env...)
		cmd.Stdout = log
		cmd.Stderr = log
		err = errors.Join(node.Start(cmd), log.Close())
		if err != nil {
			return fmt.Errorf("start %s on %s: %w", f.candidate.name, node.Name, err)
		}
		f.programs[i] = cmd
	}
	return nil
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
	for _, p := range f.programs {
		if p != nil {
			_ = p.Process.Kill() // one that has ended already
			_ = p.Wait()         // how it ended was decided here
		}
	}
	f.programs = nil
	return f.candidate.clean(ctx)
}

// fault is what happens to the node that announces the address.
type fault struct {
	// name is the name in figures, what describes it in words.
	name, what string
	make       func(s *segment, f *fleet, i int) error
	// twoAnswer reports that the address may stay behind, so that two machines answer.
	twoAnswer bool
	// wakes reports that the program continues after the takeover.
	wakes bool
}

// faults are all of them.
func faults() []fault {
	return []fault{
		{name: "node_dead", what: "all its processes stopped and its port cut at once",
			make: func(s *segment, f *fleet, i int) error {
				return errors.Join(s.cut(i, true), f.signal(i, syscall.SIGSTOP))
			}},
		{name: "killed", what: "its announcer killed", twoAnswer: true,
			make: func(_ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGKILL) }},
		{name: "stopped", what: "its announcer stopped, and going on later", twoAnswer: true, wakes: true,
			make: func(_ *segment, f *fleet, i int) error {
				return f.signal(i, syscall.SIGSTOP)
			}},
		{name: "vlan_cut", what: "its port cut, the API server still reached",
			make: func(s *segment, _ *fleet, i int) error { return s.cut(i, true) }},
		{name: "drained", what: "its announcer asked to end",
			make: func(_ *segment, f *fleet, i int) error { return f.signal(i, syscall.SIGTERM) }},
	}
}
