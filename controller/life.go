package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	cloudprovider "k8s.io/cloud-provider"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/dryrun"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/leader"
)

const (
	// lastAnswers is how long the process waits for answers to its last changes when it is stopped.
	// What is still without one then is cut off: it can be killed at any moment.
	lastAnswers = 5 * time.Second
	// lastWords is how long giving back the Lease may take.
	lastWords = 3 * time.Second
)

// life is the end of the process, in order: no more changes, answers to those under way, the end of every
// controller, and only then the Lease. The framework would end with the Lease held and changes under way.
type life struct {
	// ctx ends when the controllers have to.
	ctx      context.Context
	stop     context.CancelFunc
	handover *leader.Leadership
	// direct reaches the Kubernetes API past the handover; nil before the framework has built its clients.
	direct *rest.Config
}

// newLife returns the life of a process. It starts nothing.
func newLife(parent context.Context) *life {
	ctx, stop := context.WithCancel(parent)
	return &life{ctx: ctx, stop: stop, handover: leader.New()}
}

// begin has SIGINT and SIGTERM end the process. end must be called when it is over.
func (l *life) begin() (end func()) {
	told, forget := signal.NotifyContext(l.ctx, syscall.SIGINT, syscall.SIGTERM)
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		defer l.stop()
		<-told.Done()
		if l.ctx.Err() == nil {
			forget()         // a second signal ends the process at once
			l.quiesce(l.ctx) //nolint:contextcheck // it is the context of the process
		}
	}()
	return func() {
		l.stop()
		<-quiet
		forget()
	}
}

// quiesce refuses further changes and waits for the answers to those under way.
func (l *life) quiesce(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Ending: no more changes")
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	if err := l.handover.Quiesce(ctx); err != nil {
		logger.Error(err, "Ending all the same")
	}
}

// guard has every client of the framework that may change something pass the handover, and in a dry run
// change nothing. The framework calls us after it has built some of its clients and before the others, of
// which the leader election is one.
func (l *life) guard(completed *appconfig.CompletedConfig, dry bool) error {
	l.direct = rest.CopyConfig(completed.Kubeconfig)
	if election := completed.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		l.handover.Elect(leader.Election{RenewDeadline: election.RenewDeadline.Duration, Lost: endDeposed})
	}
	wrap := l.handover.WrapKube
	if dry {
		wrap = transport.Wrappers(dryrun.Wrap, l.handover.WrapKube)
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

// handOver gives the Lease back. Nothing may run any more that acts as leader.
func (l *life) handOver(parent context.Context) {
	logger := klog.FromContext(parent)
	if l.direct == nil {
		return
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(l.direct, program))
	if err != nil {
		logger.Error(err, "Failed to release the Lease")
		return
	}
	ctx, cancel := context.WithTimeout(parent, lastWords)
	defer cancel()
	if err := l.handover.Release(ctx, client.CoordinationV1()); err != nil {
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
	config, err := b.Config(name)
	if err != nil {
		klog.Fatal(err) //nolint:forbidigo // as the interface says
	}
	return config
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
	client, err := b.Client(name)
	if err != nil {
		klog.Fatal(err) //nolint:forbidigo // as the interface says
	}
	return client
}
