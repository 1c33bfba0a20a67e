//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
)

// maxLocal is what the probes of 500 Services with externalTrafficPolicy Local may cost, in percent of a core.
const maxLocal = 2

// MeasureLocal measures what it costs to ask kube-proxy about Services with externalTrafficPolicy Local on these ports.
// It counts all time on the processor of the calling process, so kube-proxy must be another one.
func MeasureLocal(ctx context.Context, ports []int32, settle, steady time.Duration) ([]controller.Figure, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := localhealth.New(loop.NewWake(), func() []int32 { return ports }, func() []netip.Addr { return nil }, func() {})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	loop.Sleep(ctx, settle)
	begun := time.Now()
	usedBefore, err := processorTime()
	if err != nil {
		return nil, err
	}
	loop.Sleep(ctx, steady)
	used, err := processorTime()
	share := 100 * (used - usedBefore).Seconds() / time.Since(begun).Seconds()
	probes, failures := p.Counters()
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return nil, err
	}
	if probes < uint64(len(ports)) {
		return nil, fmt.Errorf("%d probes of %d Services in %s", probes, len(ports), settle+steady)
	}
	return []controller.Figure{
		{Name: "local_services_cpu", Value: share, Unit: "%", Limit: maxLocal, Limited: true},
		{Name: "local_services_probes", Value: float64(probes), Unit: "probes"},
		{Name: "local_services_probe_timeouts", Value: float64(failures), Unit: "probes", Limited: true},
	}, nil
}

// processorTime is what this process has used so far.
func processorTime() (time.Duration, error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("read the time on the processor: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// ServeLocal answers like kube-proxy for a number of Services, each on a port of the loopback interface, and writes the
// ports, one a line, until ctx ends.
func ServeLocal(ctx context.Context, services int, out io.Writer) error {
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":1,`+
				`"serviceProxyHealthy":true}`)
		})}
	ended := make(chan error, services)
	for range services {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return errors.Join(fmt.Errorf("serve like kube-proxy: %w", err), server.Close())
		}
		go func() { ended <- server.Serve(listener) }()
		at, err := netip.ParseAddrPort(listener.Addr().String())
		if err != nil {
			return errors.Join(err, server.Close())
		}
		if _, err := fmt.Fprintln(out, at.Port()); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	<-ctx.Done()
	return server.Close()
}
