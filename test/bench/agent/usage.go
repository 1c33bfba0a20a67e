//go:build linux

package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/command"
)

// usage is what a process used.
type usage struct {
	// resident and anonymous memory at most, in MiB.
	resident, anonymous float64
	// share of a core, in percent.
	share float64
}

// samples is how often the memory is read.
const samples = 12

// watch waits until a process has come to rest and measures it for a while; read reads a file of its machine.
func watch(ctx context.Context, o Options, read func(path string) ([]byte, error), pid int) (usage, error) {
	if err := command.Pause(ctx, o.Settle); err != nil {
		return usage{}, err
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	began := time.Now()
	var before time.Duration
	var u usage
	for i := range samples + 1 {
		stat, err := read(proc + "stat")
		if err != nil {
			return usage{}, fmt.Errorf("the agent has ended: %w", err)
		}
		used, err := controller.ProcessorTime(string(stat))
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
			before = used
		} else {
			u.share = 100 * (used - before).Seconds() / time.Since(began).Seconds()
		}
		if i < samples {
			if err := command.Pause(ctx, o.Steady/samples); err != nil {
				return usage{}, err
			}
		}
	}
	return u, nil
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
