//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// MeasureInPlace measures the agent on this machine's own kernel, for the processor's sake, where that has no 802.1Q:
// the VLAN interface is a plain pair of Ethernet interfaces, so the agent finds fault with its kind and does not judge
// the addresses of Services; it looks, asks and listens as ever. The process must have a network namespace to itself.
func MeasureInPlace(ctx context.Context, o Options) (figures []controller.Figure, err error) {
	c := &setting{Options: o}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	far, err := space.Open("far")
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if err := setUpInPlace(ctx, c, far); err != nil {
		return nil, err
	}
	agent, err := startInPlace(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agent.Stop(10*time.Second)) }()
	u, err := watch(ctx, o, os.ReadFile, agent.PID())
	if err != nil {
		return nil, err
	}
	for _, f := range u.figures() {
		if f.Name == idleFigure {
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// setUpInPlace connects this namespace with the far one, in which gateway and announcing node are one.
func setUpInPlace(ctx context.Context, c *setting, far *space.Space) error {
	virtual, err := addresses(c.Services)
	if err != nil {
		return err
	}
	announce, err := tools.Product(ctx, "./test/bench/agent/cmd/announce")
	if err != nil {
		return err
	}
	near := fmt.Sprintf("link add bond0 type veth peer name cable0\nlink set bond0 up\nlink set cable0 up\nlink set "+
		"%s up\naddress add %s dev %s\n", vlanLink, ownAddress, vlanLink)
	for _, step := range []func() error{
		func() error { return batchIn(ctx, far, "link add "+vlanLink+" type veth peer name far0\n") },
		func() error { return moveHere(far) },
		func() error { return batchHere(ctx, near) },
		func() error { return batchIn(ctx, far, farLinks(virtual)) },
		func() error {
			process, err := startFar(far, announce, []string{"--every", "3s"}, virtual)
			if err != nil {
				return err
			}
			return batchHere(ctx, podLinks(c.Pods, process))
		},
		func() error {
			_, err := startFar(far, announce, []string{"--every", "30s", "--ask-from", clientAddress.Addr().String()},
				virtual)
			return err
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// moveHere moves the near end of the pair to the namespace of this process.
func moveHere(far *space.Space) error {
	link, err := far.Net.LinkByName(vlanLink)
	if err == nil {
		err = far.Net.LinkSetNsPid(link, os.Getpid())
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", vlanLink, err)
	}
	return nil
}

// farLinks give the far end what gateway and announcing node have.
func farLinks(virtual []netip.Addr) string {
	var b strings.Builder
	b.WriteString("link set far0 up\n")
	for _, block := range blocks() {
		fmt.Fprintf(&b, "address add %s/%d dev far0\n", block.Gateway, block.CIDR.Bits())
	}
	for _, address := range virtual {
		fmt.Fprintf(&b, "address add %s/32 dev far0\n", address)
	}
	return b.String()
}

// startFar starts the program that stands for the rest of the network; it ends with the namespace. It returns the ID of
// the process.
func startFar(far *space.Space, program string, flags []string, virtual []netip.Addr) (int, error) {
	args := append([]string{"--interface", "far0"}, flags...)
	for _, address := range virtual {
		args = append(args, address.String())
	}
	// Not CommandContext: the namespace ends it.
	cmd := exec.Command(program, args...) //nolint:noctx // see above; our own program
	cmd.Stderr = os.Stderr
	if err := far.Start(cmd); err != nil {
		return 0, fmt.Errorf("start to announce: %w", err)
	}
	return cmd.Process.Pid, nil
}

// batchHere runs lines of ip in this namespace, batchIn in the far one.
func batchHere(ctx context.Context, lines string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set the network up: %w: %s", err, out)
	}
	return nil
}

func batchIn(ctx context.Context, far *space.Space, lines string) error {
	return far.Do(func() error { return batchHere(ctx, lines) })
}

func startInPlace(ctx context.Context, c *setting) (*subprocess.Process, error) {
	program, err := tools.Product(ctx, "./agent")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfig(ctx, "")
	if err != nil {
		return nil, err
	}
	args := append(asPod(), program, "run", "--node-name", server, "--kubeconfig", kubeconfig, "--interface", vlanLink,
		"--uplink", "bond0")
	return controlplane.StartProgram(c.Dir, "agent", args[0], args[1:]...)
}
