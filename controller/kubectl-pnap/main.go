// Command kubectl-pnap is a kubectl plugin that shows what the phoenixNAP cloud provider does in a cluster, with the
// permissions of the user and without phoenixNAP credentials.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/util/exec"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Exit codes, in addition to those that diagnose passes on.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := newCommand(os.LookupEnv, time.Now)
	err := command.ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(os.Stderr, err))
}

// exitCode prints the error, unless the agent already did, and returns the exit code. The text of an error may come
// from the API server or from a kubelet.
func exitCode(w io.Writer, err error) int {
	var ended exec.CodeExitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	}
	_, _ = fmt.Fprintln(w, "kubectl pnap:", text.Clean(err.Error()))
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
