package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// patience bounds the life of a single Service.
const patience = 3 * time.Minute

// servers is how many servers carry the Services whose lives are measured.
const servers = 3

// begin starts a rig with a few Nodes.
func begin(ctx context.Context, dir string, s setting) (*rig, error) {
	s.servers = servers
	r, err := start(ctx, dir, s)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.register(ctx, 0, servers), r.initialised(ctx, servers, patience)); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// MeasurePublication measures what the controller adds to an API that is done at once: creates and deletes that many
// Services with a block of their own, one after another.
func MeasurePublication(ctx context.Context, dir string, count int, specs *pnapsim.Specs) (_ []Figure, err error) {
	r, err := begin(ctx, dir, setting{latency: &pnapsim.Latency{}, specs: specs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	var up, down []time.Duration
	for i := range count {
		name := fmt.Sprintf("web-%02d", i)
		took, err := r.publish(ctx, name)
		if err != nil {
			return nil, err
		}
		up = append(up, took)
		if took, err = r.remove(ctx, name, patience); err != nil {
			return nil, err
		}
		down = append(down, took)
	}
	return []Figure{
		limited("publish_overhead", slices.Max(up).Seconds(), "s", maxOverhead.Seconds()),
		told("publish_overhead_median", median(up).Seconds(), "s"),
		told("release_overhead", slices.Max(down).Seconds(), "s"),
	}, errors.Join(r.broken(), r.leaked())
}

// leaked are the blocks that are left though every Service is gone.
func (r *rig) leaked() error {
	if left := r.sim.LeakCheck(clientID); len(left) > 0 {
		return fmt.Errorf("left in the account: %v", left)
	}
	return nil
}

// median is the middle one, the greater of two.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// MeasureCalls counts what a Service costs the API, which takes its time here: scale times faster than assumed of
// the real one.
func MeasureCalls(ctx context.Context, dir string, out io.Writer, scale float64, specs *pnapsim.Specs) ([]Figure,
	error) {
	for _, sub := range []string{"dedicated", "shared"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	dedicated, err := measureDedicated(ctx, filepath.Join(dir, "dedicated"), out, scale, specs)
	if err != nil {
		return dedicated, err
	}
	shared, err := measureShared(ctx, filepath.Join(dir, "shared"), out, scale, specs)
	return append(dedicated, shared...), err
}

func measureDedicated(ctx context.Context, dir string, out io.Writer, scale float64, specs *pnapsim.Specs) (_ []Figure,
	err error) {
	r, err := begin(ctx, dir, setting{scale: scale, specs: specs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	// The first one finds the account without our tags, and makes them for all that come.
	mark := r.mark()
	if _, err := r.publish(ctx, "first"); err != nil {
		return nil, err
	}
	first := r.since(mark).beyondPolling()
	mark = r.mark()
	if _, err := r.publish(ctx, "second"); err != nil {
		return nil, err
	}
	made := r.since(mark)
	if len(made.beyondPolling()) > maxServiceCalls {
		_, _ = fmt.Fprint(out, made)
	}
	return []Figure{
		limited("dedicated_service_cloud_calls", float64(len(made.beyondPolling())), "calls", maxServiceCalls),
		told("first_dedicated_service_cloud_calls", float64(len(first)), "calls"),
		told("dedicated_service_cloud_writes", float64(len(made.writes())), "calls"),
		told("dedicated_service_cloud_calls_with_polling", float64(len(made.api())), "calls"),
	}, r.broken()
}

func measureShared(ctx context.Context, dir string, out io.Writer, scale float64, specs *pnapsim.Specs) (_ []Figure,
	err error) {
	r, err := begin(ctx, dir, setting{scale: scale, shared: true, specs: specs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if _, err := r.publish(ctx, "first"); err != nil {
		return nil, err
	}
	mark := r.mark()
	took, err := r.publish(ctx, "second")
	if err != nil {
		return nil, err
	}
	made := r.since(mark).writes()
	_, _ = fmt.Fprint(out, made)
	return []Figure{
		limited("shared_service_cloud_writes", float64(len(made)), "calls", maxSharedWrites),
		told("shared_service_published_after", took.Seconds(), "s"),
	}, r.broken()
}
