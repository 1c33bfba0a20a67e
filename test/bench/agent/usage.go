//go:build linux

package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a process used.
type usage struct {
	// resident and anonymous memory at most, in MiB.
	resident, anonymous float64
	// share of a core, in percent.
	share float64
}

// ticksPerSecond is the unit of processor time in /proc/pid/stat (proc(5)); it is 100 on every platform that Go
// supports.
const ticksPerSecond = 100

// samples is how often the memory is read.
const samples = 12

// watch waits until a process has come to rest and measures it for a while; read reads a file of its machine.
func watch(ctx context.Context, o Options, read func(path string) ([]byte, error), pid int) (usage, error) {
	if err := sleep(ctx, o.Settle); err != nil {
		return usage{}, err
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	began := time.Now()
	before := 0
	var u usage
	for i := range samples + 1 {
		stat, err := read(proc + "stat")
		if err != nil {
			return usage{}, fmt.Errorf("the agent has ended: %w", err)
		}
		ticks, err := processorTime(string(stat))
		if err != nil {
			return usage{}, err
		}
		rollup, err := read(proc + "smaps_rollup")
		if err != nil {
			return usage{}, fmt.Errorf("memory of the agent: %w", err)
		}
		resident, anonymous, err := memory(string(rollup))
		if err != nil {
			return usage{}, err
		}
		u.resident, u.anonymous = max(u.resident, resident), max(u.anonymous, anonymous)
		if i == 0 {
			began = time.Now()
			before = ticks
		} else {
			u.share = 100 * float64(ticks-before) / ticksPerSecond / time.Since(began).Seconds()
		}
		if i < samples {
			if err := sleep(ctx, o.Steady/samples); err != nil {
				return usage{}, err
			}
		}
	}
	return u, nil
}

// processorTime reads the time in user and kernel mode of /proc/pid/stat, in ticks: fields 14 and 15 (proc(5)). The
// name, field 2, is in parentheses and may hold anything.
func processorTime(stat string) (int, error) {
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("processor time: %q is no /proc/pid/stat", stat)
	}
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("processor time: %q is no /proc/pid/stat", stat)
	}
	return user + system, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// memory reads resident and anonymous memory of /proc/pid/smaps_rollup, in MiB.
func memory(rollup string) (resident, anonymous float64, err error) {
	if resident, err = mebibytes(rollup, "Rss:"); err != nil {
		return 0, 0, err
	}
	anonymous, err = mebibytes(rollup, "Anonymous:")
	return resident, anonymous, err
}

func mebibytes(rollup, name string) (float64, error) {
	for line := range strings.Lines(rollup) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != name || fields[2] != "kB" {
			continue
		}
		kibibytes, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return 0, fmt.Errorf("line %s of smaps_rollup: %w", name, err)
		}
		return kibibytes / 1024, nil
	}
	return 0, fmt.Errorf("smaps_rollup has no line %s in kB", name)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
