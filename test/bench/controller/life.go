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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// patience bounds the life of a single Service.
const patience = 3 * time.Minute

// servers is how many servers carry the Services whose lives are measured.
const servers = 3

// begin starts a harness with a few Nodes.
func begin(ctx context.Context, dir string, s setting) (*harness, error) {
	s.servers = servers
	h, err := start(ctx, dir, s)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(h.register(ctx, 0, servers), h.initialised(ctx, servers, patience)); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// MeasurePublication measures what the controller adds to an API that is done at once: creates and deletes that many
// Services with a block of their own, one after another.
func MeasurePublication(ctx context.Context, dir string, count int, specs *pnapsim.Specs) (_ []Figure, err error) {
	h, err := begin(ctx, dir, setting{latency: &pnapsim.Latency{}, specs: specs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	var up, down []time.Duration
	for i := range count {
		name := fmt.Sprintf("web-%02d", i)
		took, err := h.publish(ctx, name)
		if err != nil {
			return nil, err
		}
		up = append(up, took)
		if took, err = h.remove(ctx, name, patience); err != nil {
			return nil, err
		}
		down = append(down, took)
	}
	return []Figure{
		limited("publish_overhead", slices.Max(up).Seconds(), "s", maxOverhead.Seconds()),
		reported("publish_overhead_median", median(up).Seconds(), "s"),
		reported("release_overhead", slices.Max(down).Seconds(), "s"),
	}, errors.Join(h.broken(), h.leaked())
}

// leaked are the blocks that are left though every Service is gone.
func (h *harness) leaked() error {
	if left := h.sim.LeakCheck(clientID); len(left) > 0 {
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
	dedicated, err := measureSecond(ctx, filepath.Join(dir, "dedicated"), setting{scale: scale, specs: specs},
		func(first, made calls, _ time.Duration) []Figure {
			if len(made.beyondPolling()) > maxServiceCalls {
				_, _ = fmt.Fprint(out, made)
			}
			return []Figure{
				limited("dedicated_service_cloud_calls", float64(len(made.beyondPolling())), "calls", maxServiceCalls),
				reported("first_dedicated_service_cloud_calls", float64(len(first.beyondPolling())), "calls"),
				reported("dedicated_service_cloud_writes", float64(len(made.writes())), "calls"),
				reported("dedicated_service_cloud_calls_with_polling", float64(len(made.api())), "calls"),
			}
		})
	if err != nil {
		return dedicated, err
	}
	shared, err := measureSecond(ctx, filepath.Join(dir, "shared"), setting{scale: scale, shared: true, specs: specs},
		func(_, made calls, took time.Duration) []Figure {
			_, _ = fmt.Fprint(out, made.writes())
			return []Figure{
				limited("shared_service_cloud_writes", float64(len(made.writes())), "calls", maxSharedWrites),
				reported("shared_service_published_after", took.Seconds(), "s"),
			}
		})
	return append(dedicated, shared...), err
}

// measureSecond publishes two Services and measures the second: the first one finds the account without our tags, and
// makes them for all that come.
func measureSecond(
	ctx context.Context, dir string, s setting, figures func(first, second calls, took time.Duration) []Figure,
) (_ []Figure, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	h, err := begin(ctx, dir, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	mark := h.mark()
	if _, err := h.publish(ctx, "first"); err != nil {
		return nil, err
	}
	first := h.since(mark)
	mark = h.mark()
	took, err := h.publish(ctx, "second")
	if err != nil {
		return nil, err
	}
	return figures(first, h.since(mark), took), h.broken()
}
