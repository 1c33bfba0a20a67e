//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
)

// startedSocket is where the agent of a container reports that it has started: a name that only the processes of its
// PID namespace use. A port cannot report it, because the agents of two pods share the network of the node.
func startedSocket() (string, error) {
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("find the PID namespace: %w", err)
	}
	return "@phoenixnap-agent-started/" + namespace, nil
}

// startedReporter reports when the agent has started.
type startedReporter struct{ turn *standby.Turn }

func (r startedReporter) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.turn.Started():
	}
	name, err := startedSocket()
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", name)
	if err != nil {
		// Outside of containers two agents have one namespace, and no kubelet asks.
		klog.FromContext(ctx).V(2).Info("Cannot report the start", "reason", err.Error())
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func newStartedCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "started",
		Short: "Reports whether the agent of this container has started",
		Long: "Reports whether the agent of this container has started: it runs, or it could continue at once in " +
			"place of an earlier agent of the node.\nThis is for a startup probe. The exit code is 0 if it has started.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			name, err := startedSocket()
			if err != nil {
				return err
			}
			var dialer net.Dialer
			conn, err := dialer.DialContext(c.Context(), "unix", name)
			if err != nil {
				return errors.New("the agent of this container has not started")
			}
			return conn.Close()
		},
	}
}
