//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/arpwatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/probe"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/process"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/topology"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/wire"
)

// methods are the remote procedures; net/rpc publishes every exported one. Each call has a goroutine of its own.
type methods struct{ d *Daemon }

const defaultExecTimeout = time.Minute

// SetUp builds the lab.
func (m *methods) SetUp(setup wire.Setup, reply *wire.Topology) error {
	start := time.Now()
	network, err := m.d.setUp(setup)
	if err != nil {
		return err
	}
	*reply = wire.Topology{Uplink: network.Uplink, Took: time.Since(start)}
	return nil
}

// Clock returns the daemon's time.
func (m *methods) Clock(_ wire.Nothing, reply *time.Time) error {
	*reply = time.Now()
	return nil
}

// Exec runs a program to its end.
func (m *methods) Exec(p wire.Program, reply *wire.Output) error {
	host, err := m.host(p.Host)
	if err != nil {
		return err
	}
	timeout := p.Timeout
	if timeout == 0 {
		timeout = defaultExecTimeout
	}
	ctx, cancel := context.WithTimeout(m.d.ctx, timeout)
	defer cancel()
	defer m.d.track(p.Call, cancel)()
	*reply, err = process.Run(ctx, host, p)
	return err
}

// Cancel ends a running Exec.
func (m *methods) Cancel(call uint64, _ *wire.Nothing) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if cancel, ok := m.d.calls[call]; ok {
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
func (m *methods) StartProcess(p wire.Program, reply *int) error {
	host, err := m.host(p.Host)
	if err != nil {
		return err
	}
	*reply, err = m.d.programs.Start(host, p)
	return err
}

// Signal sends a signal to a program of StartProcess.
func (m *methods) Signal(s wire.Signal, _ *wire.Nothing) error {
	return m.d.programs.Signal(s.ID, syscall.Signal(s.Number))
}

// Await waits for the end of a program of StartProcess.
func (m *methods) Await(a wire.Await, reply *wire.Process) error {
	var err error
	*reply, err = m.d.programs.Await(m.d.ctx, a.ID, a.Timeout)
	return err
}

// Processes lists the programs of a host, or all.
func (m *methods) Processes(host string, reply *[]wire.Process) error {
	*reply = m.d.programs.List(host)
	return nil
}

// Log returns the log of a program.
func (m *methods) Log(name string, reply *[]byte) error {
	var err error
	*reply, err = m.d.programs.Log(name)
	return err
}

// WriteFile writes a file as a host sees it.
func (m *methods) WriteFile(f wire.File, _ *wire.Nothing) error {
	return m.onHost(f.Host, func() error {
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
func (m *methods) ReadFile(f wire.File, reply *[]byte) error {
	return m.onHost(f.Host, func() error {
		var err error
		*reply, err = os.ReadFile(f.Path)
		return err
	})
}

// onHost runs a function with the mounts of a host; without a name with those of the daemon.
func (m *methods) onHost(name string, f func() error) error {
	if name == "" {
		return f()
	}
	host, err := m.host(name)
	if err != nil {
		return err
	}
	return host.Do(f)
}

// ConfigureVLAN carries out the user's configuration step.
func (m *methods) ConfigureVLAN(v wire.VLAN, _ *wire.Nothing) error {
	return m.with(func(n *topology.Network) error { return n.ConfigureVLAN(v) })
}

// Break breaks the VLAN interfaces of a server.
func (m *methods) Break(b wire.Break, _ *wire.Nothing) error {
	return m.with(func(n *topology.Network) error { return n.Break(b) })
}

// Repair restores them.
func (m *methods) Repair(server string, _ *wire.Nothing) error {
	return m.with(func(n *topology.Network) error { return n.Repair(server) })
}

// KillServer takes a server away.
func (m *methods) KillServer(server string, _ *wire.Nothing) error {
	return m.with(func(n *topology.Network) error { return n.Kill(server) })
}

// ReviveServer switches it on again.
func (m *methods) ReviveServer(server string, _ *wire.Nothing) error {
	return m.with(func(n *topology.Network) error { return n.Revive(server) })
}

// Neighbours lists the ARP table of a host.
func (m *methods) Neighbours(host string, reply *[]wire.Neighbour) error {
	return m.with(func(n *topology.Network) error {
		var err error
		*reply, err = n.Neighbours(host)
		return err
	})
}

// Claims lists what was seen on the gateway's interfaces since a time of the daemon's clock.
func (m *methods) Claims(since time.Time, reply *wire.Claims) error {
	claims := m.d.record.Since(since)
	*reply = wire.Claims{Claims: claims, Conflicts: arpwatch.Conflicts(claims)}
	return nil
}

// StartProbe begins to ask from the client.
func (m *methods) StartProbe(spec wire.Probe, reply *int) error {
	client, err := m.host(wire.Client)
	if err != nil {
		return err
	}
	prober, err := probe.New(spec, func(ctx context.Context, network, address string) (net.Conn, error) {
		return client.DialFrom(ctx, spec.From, network, address)
	})
	if err != nil {
		return err
	}
	*reply = m.d.startProbe(prober)
	return nil
}

func (d *Daemon) startProbe(prober *probe.Prober) int {
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
func (m *methods) ProbeResults(id int, reply *[]wire.Attempt) error {
	p, err := m.probe(id)
	if err != nil {
		return err
	}
	*reply = p.prober.Attempts()
	return nil
}

// StopProbe ends a probe and returns all attempts. It may be called again.
func (m *methods) StopProbe(id int, reply *[]wire.Attempt) error {
	p, err := m.probe(id)
	if err != nil {
		return err
	}
	p.stop()
	<-p.done
	*reply = p.prober.Attempts()
	return nil
}

func (m *methods) probe(id int) (*runningProbe, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if p, ok := m.d.probes[id]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("no probe with the ID %d was started", id)
}

// with needs the network to be there.
func (m *methods) with(f func(*topology.Network) error) error {
	m.d.mu.Lock()
	network := m.d.network
	m.d.mu.Unlock()
	if network == nil {
		return errors.New("the lab is not set up yet")
	}
	return f(network)
}

func (m *methods) host(name string) (*space.Space, error) {
	var host *space.Space
	err := m.with(func(n *topology.Network) error {
		var err error
		host, err = n.Host(name)
		return err
	})
	return host, err
}
