// Command pnapsim serves a simulated phoenixNAP API.
//
//	pnapsim --listen 127.0.0.1:0 --seed account.json --scale 10
//
// It prints "listening http://ADDRESS" on standard output once it serves, logs one line a request on
// standard error, and ends on SIGTERM or SIGINT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// options are the command line.
type options struct {
	listen  string
	seed    string
	scale   float64
	openapi string
	random  uint64
	latency pnapsim.Latency
}

// noDocuments as --openapi checks nothing.
const noDocuments = "none"

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{latency: pnapsim.DefaultLatency()}
	flags := flag.NewFlagSet("pnapsim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	flags.StringVar(&o.seed, "seed", "", "JSON file with the accounts that there are from the start")
	flags.Float64Var(&o.scale, "scale", 1, "seconds of model time in a second")
	flags.StringVar(&o.openapi, "openapi", "",
		"directory with bmcapi.yaml, ipapi.yaml, networkapi.yaml, tagapi.yaml, locationapi.yaml; empty takes those "+
			"of phoenixNAP's SDK, \""+noDocuments+"\" checks nothing")
	flags.Uint64Var(&o.random, "random-seed", uint64(time.Now().UnixNano()), "number that makes IDs and tokens")
	o.latency.Response = pnapsim.Duration(200 * time.Millisecond)
	for name, latency := range map[string]*pnapsim.Duration{
		"latency-response": &o.latency.Response, "latency-assign": &o.latency.Assign,
		"latency-unassign":   &o.latency.Unassign,
		"latency-membership": &o.latency.Membership, "latency-block-create": &o.latency.BlockCreate,
		"latency-tag-propagation": &o.latency.TagPropagation, "latency-list-lag": &o.latency.ListLag,
		"latency-peer-group":       &o.latency.PeerGroup,
		"latency-server-list-lag":  &o.latency.ServerListLag,
		"latency-network-list-lag": &o.latency.NetworkListLag,
	} {
		flags.TextVar(latency, name, *latency, "model time, see the package's Latency")
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	sim, err := build(o, requestLogger(stderr))
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	if _, err := fmt.Fprintf(stdout, "listening http://%s\n", listener.Addr()); err != nil {
		return fmt.Errorf("report the address: %w", err)
	}
	return serve(ctx, listener, sim)
}

func build(o options, onEntry func(pnapsim.Entry)) (*pnapsim.Sim, error) {
	cfg := pnapsim.Config{Clock: pnapsim.NewRealClock(o.scale), Latency: &o.latency, RandomSeed: o.random,
		OnEntry: onEntry}
	if o.openapi != noDocuments {
		specs, err := pnapsim.LoadSpecs(o.openapi)
		if err != nil {
			return nil, fmt.Errorf("load the OpenAPI documents: %w", err)
		}
		cfg.Specs = specs
	}
	sim := pnapsim.New(cfg)
	if o.seed == "" {
		return sim, nil
	}
	file, err := os.Open(o.seed)
	if err != nil {
		return nil, fmt.Errorf("open the seed: %w", err)
	}
	defer file.Close()
	seed, err := pnapsim.ReadSeed(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.seed, err)
	}
	if err := sim.Seed(seed); err != nil {
		return nil, fmt.Errorf("%s: %w", o.seed, err)
	}
	return sim, nil
}

// grace is how long requests may take to notice the end; those that wait on purpose notice at once.
const grace = 2 * time.Second

// serve ends when ctx does, and with it every request: its context is theirs.
func serve(ctx context.Context, listener net.Listener, sim *pnapsim.Sim) error {
	server := &http.Server{
		Handler: sim.Handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		ended <- errors.Join(server.Shutdown(bounded), server.Close())
	})
	err := server.Serve(listener)
	if stop() {
		return fmt.Errorf("serve: %w", err)
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

// requestLogger writes one line a request.
func requestLogger(w io.Writer) func(pnapsim.Entry) {
	var mu sync.Mutex
	return func(e pnapsim.Entry) {
		var line strings.Builder
		fmt.Fprintf(&line, "%s %d %s %s", e.Time.UTC().Format(time.RFC3339), e.Status, e.Method, e.Path)
		for _, part := range []struct{ name, value string }{
			{"query", e.Query}, {"client", e.Client}, {"fault", e.Fault}, {"message", e.Message}, {"body", e.Body},
		} {
			if part.value != "" {
				fmt.Fprintf(&line, " %s=%q", part.name, part.value)
			}
		}
		if e.Lost {
			line.WriteString(" lost")
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(w, line.String())
	}
}
