//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

const (
	// busyFor is how long the nodes are busy, and loadPerCore how many processes want each core.
	busyFor     = 10 * time.Minute
	loadPerCore = 15
	// agentRequest is what the manifests request for an agent that announces, in thousandths of a core.
	agentRequest = 100
)

// cpuGroups is where cgroups of the controller cpu are made: that of version 1, or all of version 2.
var cpuGroups = []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"}

// group is a cgroup with a share of the processors, as the kubelet makes one for each pod.
type group string

// newGroup makes a cgroup with the share of a request in thousandths of a core.
func newGroup(name string, request int) (group, error) {
	shares := request * 1024 / 1000
	weight := 1 + (shares-2)*9999/262142 // as the kubelet converts shares
	var all error
	for _, root := range cpuGroups {
		g := group(filepath.Join(root, fmt.Sprintf("phoenixnap-bench-%d-%s", os.Getpid(), name)))
		if err := os.Mkdir(string(g), 0o755); err != nil {
			all = errors.Join(all, err)
			continue
		}
		err := g.set("cpu.shares", shares)
		if err != nil {
			err = g.set("cpu.weight", weight)
		}
		if err == nil {
			return g, nil
		}
		all = errors.Join(all, err, g.remove())
	}
	return "", fmt.Errorf("share the processors as the kubelet does: %w", all)
}

// set writes a file of the group, which the kernel made.
func (g group) set(file string, value int) error {
	f, err := os.OpenFile(filepath.Join(string(g), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(value))
	return errors.Join(err, f.Close())
}

// add moves a process into the group; those that it starts later are in it, too.
func (g group) add(pid int) error { return g.set("cgroup.procs", pid) }

// remove removes the group, after its processes have ended.
func (g group) remove() error {
	var err error
	for range 50 {
		if err = os.Remove(string(g)); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
	return err
}

// busy has processes want all processors for a while, in which each agent has the share that the manifests request.
func busy(ctx context.Context, _ *segment, f *fleet, _ int) error {
	for i, p := range f.programs {
		g, err := newGroup(nodeName(i), agentRequest)
		if err != nil {
			return err
		}
		f.groups = append(f.groups, g)
		if err := g.add(p.Process.Pid); err != nil {
			return err
		}
	}
	rest, err := newGroup("load", runtime.NumCPU()*1000-len(f.programs)*agentRequest)
	if err != nil {
		return err
	}
	return errors.Join(rest.burn(ctx, busyFor), rest.remove())
}

// burn has processes of the group want all processors for a time.
func (g group) burn(ctx context.Context, lasts time.Duration) error {
	bounded, end := context.WithTimeout(ctx, lasts)
	defer end()
	var programs []*exec.Cmd
	var err error
	for range runtime.NumCPU() * loadPerCore {
		cmd := exec.CommandContext(bounded, "/bin/sh", "-c", "while :; do :; done")
		if err = cmd.Start(); err != nil {
			break
		}
		programs = append(programs, cmd)
		if err = g.add(cmd.Process.Pid); err != nil {
			break
		}
	}
	if err != nil {
		end()
	}
	for _, p := range programs {
		_ = p.Wait() // it is killed at the end
	}
	return errors.Join(err, ctx.Err())
}
