package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// farewell is how long the process waits for its loops when it ends. Nothing is lost after it: every
// loop can be killed at any moment.
const farewell = 5 * time.Second

// loop runs until its context ends, and then returns nil.
type loop interface {
	Run(ctx context.Context) error
}

// loops runs our loops until the process is told to end or loses the election.
type loops struct {
	ctx     context.Context // the life of the process, of which the framework passes on only a channel
	running sync.WaitGroup
}

func newLoops(ctx context.Context) *loops { return &loops{ctx: ctx} }

// start runs one loop. The framework's context ends with the leadership, but not with a signal.
func (l *loops) start(ctx context.Context, each loop) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel) //nolint:contextcheck // the second of two contexts that end it
	l.running.Go(func() {
		defer cancel()
		defer stop()
		if err := each.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "A loop of the controller ended")
		}
	})
}

// wait returns when all loops have ended, but not later than after the farewell.
func (l *loops) wait() {
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(farewell):
	}
}
