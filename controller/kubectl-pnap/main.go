// Command kubectl-pnap is a plugin of kubectl: it shows what the phoenixNAP cloud provider does in a cluster, with the
// rights of whoever runs it and without credentials of phoenixNAP.
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

// Exit codes, beside those that diagnose passes on.
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

// exitCode says what went wrong, unless the agent did so itself, and returns the code to end with. The words of an error may be
// those of the API server or of a kubelet.
func exitCode(w io.Writer, err error) int {
	var ended exec.CodeExitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	case errors.As(err, &usage):
		_, _ = fmt.Fprintln(w, "kubectl pnap:", text.Clean(err.Error()))
		return exitUsage
	default:
		_, _ = fmt.Fprintln(w, "kubectl pnap:", text.Clean(err.Error()))
		return exitFailed
	}
}
