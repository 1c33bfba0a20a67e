//go:build linux

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
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
	if resident, err = controller.Mebibytes(rollup, "Rss:"); err != nil {
		return 0, 0, err
	}
	anonymous, err = controller.Mebibytes(rollup, "Anonymous:")
	return resident, anonymous, err
}
