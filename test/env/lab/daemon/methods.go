//go:build linux

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/forward"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// The remote procedures: net/rpc publishes every exported method of this form, those of the embedded types included.
// Each call has a goroutine of its own.

const defaultExecTimeout = time.Minute

// SetUp builds the lab.
func (d *Daemon) SetUp(setup wire.Setup, reply *wire.Topology) error {
	start := time.Now()
	if err := d.Build(setup); err != nil {
		return err
	}
	if err := errors.Join(d.forward(setup), d.follow(setup)); err != nil {
		return err
	}
	*reply = wire.Topology{Uplink: d.Uplink, Built: time.Since(start)}
	return nil
}

// Clock returns the daemon's time.
func (d *Daemon) Clock(_ wire.Nothing, reply *time.Time) error {
	*reply = time.Now()
	return nil
}

// Exec runs a program to its end.
func (d *Daemon) Exec(p wire.Program, reply *wire.Output) error {
	host, err := d.Host(p.Host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, cmp.Or(p.Timeout, defaultExecTimeout))
	defer cancel()
	defer d.track(p.Call, cancel)()
	*reply, err = runProgram(ctx, host, p)
	return err
}

// Cancel ends a running Exec.
func (d *Daemon) Cancel(call uint64, _ *wire.Nothing) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel, ok := d.calls[call]; ok {
		cancel()
	}
	return nil
}

// track makes a call cancellable until the function that it returns is called.
func (d *Daemon) track(call uint64, cancel context.CancelFunc) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[call] = cancel
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.calls, call)
	}
}

// StartProcess starts a long-lived program.
func (d *Daemon) StartProcess(p wire.Program, reply *int) error {
	host, err := d.Host(p.Host)
	if err != nil {
		return err
	}
	*reply, err = d.Start(host, p)
	return err
}

// Await waits for the end of a program of StartProcess.
func (d *Daemon) Await(a wire.Await, reply *wire.Process) (err error) {
	*reply, err = d.await(d.ctx, a.ID, a.Timeout)
	return err
}

// Connect connects a host with an address, and the caller with that connection.
func (d *Daemon) Connect(c wire.Connection, _ *wire.Nothing) error {
	host, err := d.Host(c.Host)
	if err != nil {
		return err
	}
	far, err := host.Dial(d.ctx, "tcp", c.Address)
	if err != nil {
		return fmt.Errorf("connect %s with %s: %w", c.Host, c.Address, err)
	}
	near, err := new(net.Dialer).DialContext(d.ctx, "tcp", c.CallBack)
	if err != nil {
		far.Close()
		return fmt.Errorf("call the caller back: %w", err)
	}
	if _, err := fmt.Fprintln(near, c.Token); err != nil {
		near.Close()
		far.Close()
		return fmt.Errorf("greet the caller: %w", err)
	}
	d.group.Go(func() error {
		forward.Join(d.ctx, near, far)
		return nil
	})
	return nil
}

// WriteFile writes a file as a host sees it.
func (d *Daemon) WriteFile(f wire.File, _ *wire.Nothing) error {
	return d.onHost(f.Host, func() error {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(f.Path, f.Data, os.FileMode(f.Mode)); err != nil {
			return err
		}
		return os.Chmod(f.Path, os.FileMode(f.Mode)) // an existing file keeps its mode otherwise
	})
}

// ReadFile reads a file as a host sees it.
func (d *Daemon) ReadFile(f wire.File, reply *[]byte) error {
	return d.onHost(f.Host, func() (err error) {
		*reply, err = os.ReadFile(f.Path)
		return err
	})
}

// onHost runs a function with the mounts of a host; without a name with those of the daemon.
func (d *Daemon) onHost(name string, f func() error) error {
	if name == "" {
		return f()
	}
	host, err := d.Host(name)
	if err != nil {
		return err
	}
	return host.Do(f)
}

// Claims lists what was seen on the gateway's interfaces since a time of the daemon's clock.
func (d *Daemon) Claims(since time.Time, reply *[]wire.Claim) error {
	*reply = d.record.Since(since)
	return nil
}

// StartProbe begins to ask from the client.
func (d *Daemon) StartProbe(spec wire.Probe, reply *int) error {
	client, err := d.Host(wire.Client)
	if err != nil {
		return err
	}
	prober, err := newProber(spec, func(ctx context.Context, network, address string) (net.Conn, error) {
		return client.DialFrom(ctx, spec.From, network, address)
	})
	if err != nil {
		return err
	}
	*reply = d.startProbe(prober)
	return nil
}

func (d *Daemon) startProbe(prober *prober) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithCancel(d.ctx)
	running := &runningProbe{prober: prober, stop: cancel, done: make(chan struct{})}
	d.group.Go(func() error {
		defer close(running.done)
		return prober.Run(ctx)
	})
	id := len(d.probes) + 1
	d.probes[id] = running
	return id
}

// ProbeResults returns the attempts so far.
func (d *Daemon) ProbeResults(id int, reply *[]wire.Attempt) error {
	p, err := d.probe(id)
	if err != nil {
		return err
	}
	*reply = p.prober.Attempts()
	return nil
}

// StopProbe ends a probe and returns all attempts. It may be called again.
func (d *Daemon) StopProbe(id int, reply *[]wire.Attempt) error {
	p, err := d.probe(id)
	if err != nil {
		return err
	}
	p.stop()
	<-p.done
	*reply = p.prober.Attempts()
	return nil
}

func (d *Daemon) probe(id int) (*runningProbe, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.probes[id]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("no probe with the ID %d was started", id)
}
