package main

import (
	"context"
	"sync"
	"time"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
)

// shutdownTimeout is how long the process waits for its loops when it ends. Nothing is lost after it: every
// loop can be killed at any moment.
const shutdownTimeout = 5 * time.Second

// loop runs until its context ends, and then returns nil.
type loop interface {
	Run(ctx context.Context) error
}

// loops runs our loops until the process is stopped or loses the election.
type loops struct {
	ctx     context.Context // the life of the process, of which the framework passes on only a channel
	running sync.WaitGroup
}

func newLoops(ctx context.Context) *loops { return &loops{ctx: ctx} }

// start runs one loop until ctx, which bind has made, ends.
func (l *loops) start(ctx context.Context, each loop) {
	l.running.Go(func() {
		if err := each.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "A loop of the controller ended")
		}
	})
}

// bind makes the framework's controllers, too, end with the process and not only with the leadership.
func (l *loops) bind(all map[string]app.ControllerInitFuncConstructor) map[string]app.ControllerInitFuncConstructor {
	bound := make(map[string]app.ControllerInitFuncConstructor, len(all))
	for name, each := range all {
		bound[name] = app.ControllerInitFuncConstructor{
			InitContext: each.InitContext,
			Constructor: func(init app.ControllerInitContext, completed *appconfig.CompletedConfig,
				cloud cloudprovider.Interface) app.InitFunc {
				start := each.Constructor(init, completed, cloud)
				return func(ctx context.Context,
					framework genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
					return start(l.bound(ctx), framework)
				}
			},
		}
	}
	return bound
}

// bound returns a context that ends with ctx and with the process.
func (l *loops) bound(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(l.ctx, cancel) // the second of two contexts that end it
	return ctx
}

// wait returns when all loops have ended, but at the latest after that time.
func (l *loops) wait() {
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(shutdownTimeout):
	}
}
