//go:build linux

// Command pause is the first process of every pod: it holds the pod's namespaces until a signal ends it, and takes
// leave of processes that the pod has orphaned.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects children that have ended until there is none.
func reap() {
	for {
		var status syscall.WaitStatus
		id, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) && id <= 0 {
			return
		}
	}
}
