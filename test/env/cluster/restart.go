//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

const (
	// standsBy is what an agent logs once it could continue in place of the earlier one of its node.
	standsBy = "Ready to continue in place of the earlier agent of this node"
	// standByLimit is how long that may take on a busy machine.
	standByLimit = 2 * time.Minute
	// endOfChildren ends what a shell runs, whose process ID is the first argument.
	endOfChildren = `kill $(cat /proc/"$1"/task/"$1"/children)`
)

// RestartAgent replaces the agent of a server as the DaemonSet does: the later one starts beside it, and once that
// stands by, the earlier one is ended.
func (c *Cluster) RestartAgent(ctx context.Context, s Server) error {
	name := "agent-" + s.Name
	earlier, err := c.running(ctx, s, name)
	if err != nil {
		return err
	}
	before, err := c.standingBy(ctx, name)
	if err != nil {
		return err
	}
	if err := c.StartAgent(ctx, s); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, standByLimit, true,
		func(ctx context.Context) (bool, error) {
			now, err := c.standingBy(ctx, name)
			return now > before, err
		})
	if err != nil {
		return fmt.Errorf("wait until the later agent of %s stands by: %w", s.Name, err)
	}
	if err := c.Lab.Signal(ctx, earlier.ID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", name, err)
	}
	if ended, err := c.Lab.Await(ctx, earlier.ID, terminationGrace); err != nil || !ended.Exited {
		return fmt.Errorf("wait for the end of %s (ended: %v): %w", name, ended.Exited, err)
	}
	return nil
}

// RestartProxy ends kube-proxy on a server, which starts again. Its rules stay in the kernel meanwhile.
func (c *Cluster) RestartProxy(ctx context.Context, s Server) error {
	shell, err := c.running(ctx, s, "kube-proxy-"+s.Name)
	if err != nil {
		return err
	}
	out, err := c.Lab.Exec(ctx, s.Name, "sh", "-c", endOfChildren, "sh", strconv.Itoa(shell.PID))
	if err != nil || out.Code != 0 {
		return fmt.Errorf("end kube-proxy of %s: exit code %d, %s: %w", s.Name, out.Code, out.Stderr, err)
	}
	return nil
}

// running is the program of a name that runs on a server.
func (c *Cluster) running(ctx context.Context, s Server, name string) (lab.Process, error) {
	all, err := c.Lab.Processes(ctx, s.Name)
	if err != nil {
		return lab.Process{}, err
	}
	for _, p := range all {
		if p.Name == name && !p.Exited {
			return p, nil
		}
	}
	return lab.Process{}, fmt.Errorf("%s does not run on %s", name, s.Name)
}

// standingBy is how many agents of a name have stood by.
func (c *Cluster) standingBy(ctx context.Context, name string) (int, error) {
	log, err := c.Lab.Log(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("log of %s: %w", name, err)
	}
	return bytes.Count(log, []byte(standsBy)), nil
}
