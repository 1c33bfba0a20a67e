// Package metricsserver serves the agent's metrics and health over HTTP.
package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
)

const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second
	shutdownTimeout = 2 * time.Second
	// headerLimit, in bytes, and scrapes at once bound what any client that can reach the port costs the node.
	headerLimit = 8 << 10
	scrapeLimit = 4
)

// Health is what /healthz and /readyz report.
type Health struct {
	// Stale is the age of the last sample beyond which the agent is no longer alive.
	Stale time.Duration

	started time.Time
	// lastSample counts from started, so that a step of the wall clock makes no sample look old; 0 is none.
	lastSample atomic.Int64
	ready      atomic.Bool
}

// NewHealth returns the health of an agent that starts at now.
func NewHealth(stale time.Duration, now time.Time) *Health {
	return &Health{Stale: stale, started: now}
}

// Sampled notes that a sample was taken.
func (h *Health) Sampled(now time.Time) { h.lastSample.Store(max(1, int64(now.Sub(h.started)))) }

// SetReady notes that a sample was taken since the Node was read.
func (h *Health) SetReady() { h.ready.Store(true) }

// Alive returns an error when no samples are taken any more.
func (h *Health) Alive(now time.Time) error {
	last := h.started.Add(time.Duration(h.lastSample.Load()))
	if age := now.Sub(last); age > h.Stale {
		return fmt.Errorf("the last sample is %s old", age.Round(time.Second))
	}
	return nil
}

// Ready returns an error that names all that is missing until the agent has read its Node and taken a sample since. An
// API server that becomes unreachable later changes nothing: the agent continues to watch.
func (h *Health) Ready() error {
	var missing []error
	if h.lastSample.Load() == 0 {
		missing = append(missing, errors.New("sample: none has been taken yet"))
	}
	if !h.ready.Load() {
		missing = append(missing, errors.New("node: the Node has not been read yet, or no sample was taken since"))
	}
	return errors.Join(missing...)
}

// Server serves metrics and health on one address and, where Private is set, on the private addresses of the machine.
type Server struct {
	// Private is set before Run.
	Private bool

	turn    *standby.Turn
	handler http.Handler
}

// Prober says what /healthz and /readyz report; a Health does.
type Prober interface {
	Alive(now time.Time) error
	Ready() error
}

// NewServer returns a server for the address of turn ("127.0.0.1:0" takes any free port; empty serves nothing), which
// it serves when it is the agent's turn. networks is asked at each scrape. It starts nothing.
func NewServer(turn *standby.Turn, metrics *Metrics, networks prometheus.Collector, health Prober) *Server {
	asked := prometheus.NewRegistry()
	asked.MustRegister(networks)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(
		prometheus.Gatherers{metrics.Gatherer(), asked}, promhttp.HandlerOpts{MaxRequestsInFlight: scrapeLimit}))
	mux.Handle("GET /healthz", probe(func() error { return health.Alive(time.Now()) }))
	mux.Handle("GET /readyz", probe(health.Ready))
	mux.Handle("GET "+standby.Path, &turn.Post)
	return &Server{turn: turn, handler: mux}
}

func probe(healthy func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := "ok"
		if err := healthy(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		// A client that went away is no matter.
		_, _ = fmt.Fprintln(w, text)
	})
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.turn.Listen(ctx)
	if err != nil {
		return fmt.Errorf("serve metrics on %s: %w; choose another address with --metrics-bind-address",
			s.turn.Address, err)
	}
	if listener == nil {
		<-ctx.Done()
		return nil
	}
	klog.FromContext(ctx).Info("Serving metrics and health", "address", listener.Addr().String())
	if s.Private {
		listener = listen.OnPrivate(ctx, listener)
	}
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: requestTimeout, MaxHeaderBytes: headerLimit,
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-groupCtx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(bounded)
	})
	return group.Wait()
}
