//go:build linux

package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"path"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// What callers give and get; see package wire for each field.
type (
	// VLAN is the user's configuration of a VLAN interface.
	VLAN = wire.VLAN
	// Fault is a way in which a VLAN interface breaks.
	Fault = wire.Fault
	// Program is a program to run.
	Program = wire.Program
	// Output is how a program ended.
	Output = wire.Output
	// Process is a long-lived program.
	Process = wire.Process
	// Probe describes requests from the client, by HTTP or UDP.
	Probe = wire.Probe
	// Attempt is one of them.
	Attempt = wire.Attempt
	// Outage is a stretch without an answer.
	Outage = wire.Outage
	// Claim is an ARP packet that claims an address.
	Claim = wire.Claim
	// Neighbour is an entry of an ARP table.
	Neighbour = wire.Neighbour
)

// Hosts besides the servers, and the faults.
const (
	Switch     = wire.Switch
	Gateway    = wire.Gateway
	Client     = wire.Client
	Management = wire.Management

	LinkDown    = wire.LinkDown
	LinkDeleted = wire.LinkDeleted
	WrongVLAN   = wire.WrongVLAN
)

// GatewayAddress is the gateway's address for the client.
var GatewayAddress = wire.GatewayAddress

// PodOf is the host name of a server's pod.
func PodOf(server string) string { return server + wire.PodSuffix }

// Path is where a file of Config.Files or WriteFile appears on every host.
func Path(name string) string { return path.Join(wire.Directory, name) }

// Outages finds the stretches of failed attempts.
func Outages(attempts []Attempt) []Outage { return wire.Outages(attempts) }

// call calls the daemon. When the context ends it returns at once; the daemon finishes or is canceled.
func call[Reply any](ctx context.Context, l *Lab, method string, args any) (Reply, error) {
	var none, reply Reply
	c := l.client.Go(wire.Service+"."+method, args, &reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
	case <-ctx.Done():
		return none, fmt.Errorf("lab: %s: %w", method, context.Cause(ctx))
	}
	if errors.Is(c.Error, rpc.ErrShutdown) || errors.Is(c.Error, io.ErrUnexpectedEOF) {
		return none, fmt.Errorf("lab: %s: the lab has ended: %w", method, c.Error)
	}
	if c.Error != nil {
		return none, fmt.Errorf("lab: %s: %w", method, c.Error)
	}
	return reply, nil
}

// do calls a method without an answer.
func (l *Lab) do(ctx context.Context, method string, args any) error {
	_, err := call[wire.Nothing](ctx, l, method, args)
	return err
}

// Exec runs a program on a host to its end. An exit code other than 0 is a result, not an error.
func (l *Lab) Exec(ctx context.Context, host string, args ...string) (Output, error) {
	return l.ExecProgram(ctx, Program{Host: host, Args: args})
}

// ExecProgram is Exec with environment, standard input and time limit.
func (l *Lab) ExecProgram(ctx context.Context, p Program) (Output, error) {
	p.Call = l.calls.Add(1)
	out, err := call[Output](ctx, l, "Exec", p)
	if ctx.Err() != nil {
		l.client.Go(wire.Service+".Cancel", p.Call, new(wire.Nothing), make(chan *rpc.Call, 1))
	}
	return out, err
}

// StartProcess starts a long-lived program and returns its ID. What it writes goes to the log of its name.
func (l *Lab) StartProcess(ctx context.Context, p Program) (int, error) {
	return call[int](ctx, l, "StartProcess", p)
}

// Signal sends a signal to a program of StartProcess; it is not an error that the program has ended.
func (l *Lab) Signal(ctx context.Context, id int, signal syscall.Signal) error {
	return l.do(ctx, "Signal", wire.Signal{ID: id, Number: int(signal)})
}

// Await waits until a program has ended, at most for a time (0: not at all), and returns its state; Exited says
// whether it has.
func (l *Lab) Await(ctx context.Context, id int, timeout time.Duration) (Process, error) {
	return call[Process](ctx, l, "Await", wire.Await{ID: id, Timeout: timeout})
}

// Processes lists the programs that were started on a host, or on all hosts when the name is empty.
func (l *Lab) Processes(ctx context.Context, host string) ([]Process, error) {
	return call[[]Process](ctx, l, "Processes", host)
}

// Log returns what the programs of a name have written.
func (l *Lab) Log(ctx context.Context, name string) ([]byte, error) {
	return call[[]byte](ctx, l, "Log", name)
}

// Dial connects to a TCP address (host:port) as a host reaches it.
func (l *Lab) Dial(ctx context.Context, host, address string) (net.Conn, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	token := rand.Text()
	if err := l.do(ctx, "Connect", wire.Connection{Host: host, Address: address,
		CallBack: net.JoinHostPort(l.hostAddress(), port), Token: token}); err != nil {
		return nil, err
	}
	return l.accept(ctx, listener, token)
}

// WriteFile writes a small file /lab/<name> that every host sees.
func (l *Lab) WriteFile(ctx context.Context, name string, data []byte, mode uint32) error {
	return l.WriteHostFile(ctx, "", Path(name), data, mode)
}

// WriteHostFile writes a file at a path as one host sees it; /run, with HOME and TMPDIR, is each host's own.
func (l *Lab) WriteHostFile(ctx context.Context, host, path string, data []byte, mode uint32) error {
	return l.do(ctx, "WriteFile", wire.File{Host: host, Path: path, Data: data, Mode: mode})
}

// ReadFile reads a file as a host sees it.
func (l *Lab) ReadFile(ctx context.Context, host, path string) ([]byte, error) {
	return call[[]byte](ctx, l, "ReadFile", wire.File{Host: host, Path: path})
}

// ConfigureVLAN carries out the user's configuration step on a server: interface, address, default route, kernel
// settings. It is remembered for Repair and ReviveServer.
func (l *Lab) ConfigureVLAN(ctx context.Context, v VLAN) error { return l.do(ctx, "ConfigureVLAN", v) }

// Break breaks the VLAN interfaces that were configured on a server.
func (l *Lab) Break(ctx context.Context, server string, fault Fault) error {
	return l.do(ctx, "Break", wire.Break{Server: server, Fault: fault})
}

// BreakVLAN breaks the interface of one VLAN of a server.
func (l *Lab) BreakVLAN(ctx context.Context, server string, vlan int, fault Fault) error {
	return l.do(ctx, "Break", wire.Break{Server: server, Fault: fault, VLAN: vlan})
}

// Repair restores what was configured.
func (l *Lab) Repair(ctx context.Context, server string) error { return l.do(ctx, "Repair", server) }

// KillServer takes a server away at once: its port goes down, every process on it and its pod dies by SIGKILL.
func (l *Lab) KillServer(ctx context.Context, server string) error {
	return l.do(ctx, "KillServer", server)
}

// ReviveServer switches a killed server on: networks as configured, no processes, nothing kept in the kernel.
func (l *Lab) ReviveServer(ctx context.Context, server string) error {
	return l.do(ctx, "ReviveServer", server)
}

// StartProbe begins to ask a server from the client, beyond the gateway.
func (l *Lab) StartProbe(ctx context.Context, p Probe) (int, error) {
	return call[int](ctx, l, "StartProbe", p)
}

// ProbeResults returns the attempts of a probe so far, in the order of their beginning.
func (l *Lab) ProbeResults(ctx context.Context, id int) ([]Attempt, error) {
	return l.attempts(ctx, "ProbeResults", id)
}

// StopProbe ends a probe and returns all its attempts.
func (l *Lab) StopProbe(ctx context.Context, id int) ([]Attempt, error) {
	return l.attempts(ctx, "StopProbe", id)
}

func (l *Lab) attempts(ctx context.Context, method string, id int) ([]Attempt, error) {
	all, err := call[[]Attempt](ctx, l, method, id)
	if err != nil {
		return nil, err
	}
	skew, err := l.skew(ctx)
	for i := range all {
		all[i].At = all[i].At.Add(-skew)
	}
	return all, err
}

// ARPClaims returns what the gateway's VLAN interfaces have seen since a time.
func (l *Lab) ARPClaims(ctx context.Context, since time.Time) ([]Claim, error) {
	skew, err := l.skew(ctx)
	if err != nil {
		return nil, err
	}
	all, err := call[[]Claim](ctx, l, "Claims", since.Add(skew))
	for i := range all {
		all[i].At = all[i].At.Add(-skew)
	}
	return all, err
}

// Neighbours returns the ARP table of a host, such as the gateway's.
func (l *Lab) Neighbours(ctx context.Context, host string) ([]Neighbour, error) {
	return call[[]Neighbour](ctx, l, "Neighbours", host)
}

// skew is by how much the daemon's clock is ahead of ours.
func (l *Lab) skew(ctx context.Context) (time.Duration, error) {
	asked := time.Now().Round(0) // without the monotonic clock, which the other side does not share
	remote, err := call[time.Time](ctx, l, "Clock", wire.Nothing(false))
	if err != nil {
		return 0, err
	}
	took := time.Now().Round(0).Sub(asked)
	return remote.Sub(asked.Add(took / 2)), nil
}
