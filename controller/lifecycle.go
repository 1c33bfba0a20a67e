package main

import (
	"context"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/prometheus/slis"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/dryrun"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/controllers"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
)

const (
	// drainTimeout is how long the process waits for answers to its last changes when it is stopped.
	// What is still without one then is cut off: it can be killed at any moment.
	drainTimeout = 5 * time.Second
	// releaseTimeout is how long releasing the Lease may take.
	releaseTimeout = 3 * time.Second
)

// lifecycle is the end of the process, in order: no more changes, answers to those under way, the end of every
// controller, and only then the Lease. The framework would end with the Lease held and changes under way.
type lifecycle struct {
	ctx        context.Context // ctx ends when the controllers have to
	stop       context.CancelFunc
	leadership *leader.Leadership
	// direct reaches the Kubernetes API past the leadership; nil before the framework has built its clients.
	direct *rest.Config
}

// newLifecycle returns the life of a process. It starts nothing.
func newLifecycle(parent context.Context) *lifecycle {
	ctx, stop := context.WithCancel(parent)
	return &lifecycle{ctx: ctx, stop: stop, leadership: leader.New()}
}

// begin has SIGINT and SIGTERM end the process. end must be called when it is over.
func (l *lifecycle) begin() (end func()) {
	signalled, forget := signal.NotifyContext(l.ctx, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer l.stop()
		<-signalled.Done()
		if l.ctx.Err() == nil {
			forget()         // a second signal ends the process at once
			l.quiesce(l.ctx) //nolint:contextcheck // it is the context of the process
		}
	}()
	return func() {
		l.stop()
		<-ended
		forget()
	}
}

// quiesce refuses further changes and waits for the answers to those under way.
func (l *lifecycle) quiesce(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Ending: no more changes")
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := l.leadership.Quiesce(ctx); err != nil {
		logger.Error(err, "Ending all the same")
	}
}

// guard has every client of the framework that may change something pass the leadership, and in a dry run
// change nothing. The framework calls us after it has built some of its clients and before the others, of
// which the leader election is one.
func (l *lifecycle) guard(completed *appconfig.CompletedConfig, dry bool) error {
	l.direct = rest.CopyConfig(completed.Kubeconfig)
	if election := completed.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		l.leadership.Elect(leader.Election{RenewDeadline: election.RenewDeadline.Duration, Lost: endDeposed})
	}
	wrap := l.leadership.WrapKube
	if dry {
		wrap = transport.Wrappers(dryrun.Wrap, l.leadership.WrapKube)
	}
	completed.Kubeconfig.Wrap(wrap)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(completed.Kubeconfig), program))
	if err != nil {
		return err
	}
	completed.Client = client
	if completed.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		completed.ClientBuilder = guardedBuilder{completed.ClientBuilder, wrap} // its configuration was copied before
	}
	return nil
}

// endDeposed ends the process at once, as the framework does when the Lease cannot be renewed within its deadline:
// what is under way belongs to the successor.
func endDeposed(holder string) {
	klog.Background().Error(nil, "Another replica holds the Lease, or has held it: ending", "holder", holder)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// release releases the Lease. Nothing may run any more that acts as leader.
func (l *lifecycle) release(parent context.Context) {
	logger := klog.FromContext(parent)
	if l.direct == nil {
		return
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(l.direct, program))
	if err != nil {
		logger.Error(err, "Failed to release the Lease")
		return
	}
	ctx, cancel := context.WithTimeout(parent, releaseTimeout)
	defer cancel()
	if err := l.leadership.Release(ctx, client.CoordinationV1()); err != nil {
		logger.Error(err, "Failed to release the Lease; another replica has to wait for its end")
	}
}

// guardedBuilder wraps the transports of another builder.
type guardedBuilder struct {
	cloudprovider.ControllerClientBuilder
	wrap transport.WrapperFunc
}

// Config implements cloudprovider.ControllerClientBuilder.
func (b guardedBuilder) Config(name string) (*rest.Config, error) {
	config, err := b.ControllerClientBuilder.Config(name)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(b.wrap)
	return config, nil
}

// ConfigOrDie implements cloudprovider.ControllerClientBuilder.
func (b guardedBuilder) ConfigOrDie(name string) *rest.Config {
	return orDie(b.Config(name))
}

// Client implements cloudprovider.ControllerClientBuilder.
func (b guardedBuilder) Client(name string) (kubernetes.Interface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (b guardedBuilder) ClientOrDie(name string) kubernetes.Interface {
	return orDie(b.Client(name))
}

func orDie[T any](built T, err error) T {
	if err != nil {
		klog.Fatal(err) //nolint:forbidigo // as the interface says
	}
	return built
}

// serve serves health, metrics and the rest in place of the framework, which does not serve a
// single check, so there would be no way to learn what is wrong with the phoenixNAP API. private adds the private
// addresses of the machine. It ends with the process.
func (l *lifecycle) serve(completed *appconfig.CompletedConfig, api func() pnap.Health, private bool) error {
	serving := completed.SecureServing
	if serving == nil {
		return nil
	}
	completed.SecureServing = nil
	if private {
		serving.Listener = listen.OnPrivate(l.ctx, serving.Listener)
	}
	var checks []healthz.HealthChecker
	if election := completed.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		checks = append(checks, healthz.NamedCheck("leaderElection", // the name that the framework gives it
			func(*http.Request) error { return l.leadership.CheckRenewal(election.LeaseDuration.Duration) }))
	}
	handler := &health{checks: controllerhealthz.NewMutableHealthzHandler(checks...), api: api}
	base := genericcontrollermanager.NewBaseHandler(&completed.ComponentConfig.Generic.Debugging, handler)
	base.HandlePrefix(healthPath+"/", handler)
	slis.SLIMetricsWithReset{}.Install(base)
	_, _, err := serving.Serve(genericcontrollermanager.BuildHandlerChain(base, &completed.Authorization,
		&completed.Authentication), 0, l.ctx.Done())
	return err
}

// shutdownTimeout is how long the process waits for its loops when it ends. Nothing is lost after it: every
// loop can be killed at any moment.
const shutdownTimeout = 5 * time.Second

// loops runs our loops until the process is stopped or loses the election.
type loops struct {
	ctx     context.Context // the life of the process, of which the framework passes on only a channel
	running sync.WaitGroup
}

func newLoops(ctx context.Context) *loops { return &loops{ctx: ctx} }

// start runs one loop until ctx, which bind has made, ends.
func (l *loops) start(ctx context.Context, each controllers.Controller) {
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
