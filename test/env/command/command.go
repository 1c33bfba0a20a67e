// Package command has what the main functions of test programs share.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Main runs a program; an interrupt or SIGTERM ends its context. An error, unless it is that of
// --help, is printed and ends the process with code 1.
func Main(run func(context.Context) error) {
	//nolint:forbidigo // it is called by main functions
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// LogDir makes the directory for logs that the user named, or a temporary one, which remove removes.
func LogDir(named string) (dir string, remove func() error, err error) {
	if named != "" {
		dir, err = filepath.Abs(named) // programs have other working directories
		return dir, func() error { return nil }, errors.Join(err, os.MkdirAll(named, 0o755))
	}
	dir, err = os.MkdirTemp("", "pnap-logs-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// Pause waits for a time, or returns the reason why the context ended.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
