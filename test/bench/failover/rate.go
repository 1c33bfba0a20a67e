//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

const (
	// RespondCommand is the argument with which the program only answers for the address.
	RespondCommand = "respond"
	// rateFor is for how long questions are asked as fast as they are answered, rateWarm that before, and rateStart
	// bounds how long the responder takes to start.
	rateFor   = 3 * time.Second
	rateWarm  = 500 * time.Millisecond
	rateStart = 30 * time.Second
	// inFlight bounds the requests without an answer, so that those are counted that are answered and not those that
	// are lost.
	inFlight = 512
)

// RunResponder answers for the address of the Service until ctx ends.
func RunResponder(ctx context.Context) error {
	r := responder.New(responder.Config{Interface: func() string { return publicLink }})
	r.Grant(responder.NewTable(responder.Now()+time.Hour, virtual))
	return r.Run(ctx)
}

// Rate is how fast a responder on one core is.
type Rate struct {
	// PerSecond is how many requests it answered in a second, PerCoreSecond in a second in which it had the core: the
	// same on a machine that does nothing else.
	PerSecond, PerCoreSecond float64
}

// MeasureRate measures a responder on one core through a pair of veth interfaces.
func MeasureRate(ctx context.Context) (rate Rate, err error) {
	var prober, answerer *space.Space
	for name, host := range map[string]**space.Space{"prober": &prober, "answerer": &answerer} {
		if *host, err = space.Open(name); err != nil {
			return Rate{}, err
		}
		defer (*host).Close()
	}
	if err := cable(prober, publicLink, answerer, publicLink); err != nil {
		return Rate{}, err
	}
	pid, stop, err := respond(answerer)
	if err != nil {
		return Rate{}, err
	}
	defer stop()
	var p *packet.Port
	if err := prober.Visit(func() (err error) {
		p, err = packet.Open(publicLink, unix.ETH_P_ARP, []bpf.Instruction{bpf.RetConstant{Val: 64}}, 1<<22)
		return err
	}); err != nil {
		return Rate{}, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := warm(ctx, p); err != nil {
		return Rate{}, err
	}
	before, err := processorTime(pid)
	if err != nil {
		return Rate{}, err
	}
	answers, err := flood(ctx, p, rateFor)
	if err != nil {
		return Rate{}, err
	}
	after, err := processorTime(pid)
	if err != nil {
		return Rate{}, err
	}
	busy := max(after-before, 10*time.Millisecond) // one tick
	return Rate{PerSecond: float64(answers) / rateFor.Seconds(), PerCoreSecond: float64(answers) / busy.Seconds()}, nil
}

// warm asks until there are answers.
func warm(ctx context.Context, p *packet.Port) error {
	for begun := time.Now(); time.Since(begun) < rateStart; {
		answers, err := flood(ctx, p, rateWarm)
		if err != nil || answers > 0 {
			return err
		}
	}
	return fmt.Errorf("the responder does not answer within %s", rateStart)
}

// processorTime is what a process has used of processors, in its own code and in the kernel's.
func processorTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return controller.ProcessorTime(string(raw))
}

// respond starts a responder on the first core, and with one thread for Go code.
func respond(host *space.Space) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, fmt.Errorf("find this program: %w", err)
	}
	taskset, err := tools.Program("taskset")
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.Command(taskset, "--cpu-list", "0", self, RespondCommand) //nolint:noctx // it is ended by stop
	cmd.Env = append(host.Environment(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	if err := host.Start(cmd); err != nil {
		return 0, nil, fmt.Errorf("start a responder: %w", err)
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill() // one that has ended already
		_ = cmd.Wait()         // how it ended was decided here
	}, nil
}

// flood asks as fast as answers come, and counts these.
func flood(ctx context.Context, p *packet.Port, lasts time.Duration) (answers int, err error) {
	out := packet.NewBatch(64, 64)
	in := packet.NewBatch(64, 64)
	request := arpRequest(p.MAC, netip.MustParseAddr("203.0.113.1"), virtual)
	for !out.Full() {
		out.Add(request)
	}
	sent := 0
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		for sent-answers < inFlight {
			if err := p.Send(out); err != nil {
				return answers, err
			}
			sent += out.Len()
		}
		if err := p.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			return answers, err
		}
		err := p.Receive(in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			sent = answers // what was lost is not waited for
		case err != nil:
			return answers, err
		default:
			answers += in.Len()
		}
	}
	return answers, ctx.Err()
}
