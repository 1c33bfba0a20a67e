package nodewatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// trustFor is how long a watch of IPBlocks is trusted that shows nothing: the API server sends a bookmark about
	// every minute.
	trustFor = 150 * time.Second
	// patience is how long an agent that starts waits for the first list of IPBlocks.
	patience = 10 * time.Second
)

// BlockSource are the IPBlocks of an API server; client.IPBlocks is one.
type BlockSource interface {
	List(ctx context.Context, options metav1.ListOptions) (*v1beta1.IPBlockList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// BlockWatcher follows all IPBlocks. It keeps only what the agent reads of them, and keeps that while they cannot be
// read.
type BlockWatcher struct {
	watcher
	onChange, onNetwork func()

	mu    sync.Mutex
	known blocks.Known
	// ended is set once the first list is complete, has failed, or lasts too long. problem is the last failure that was
	// logged.
	ended   bool
	problem string
}

// NewBlockWatcher returns a watcher of IPBlocks. onChange is called when what they say may have changed, and onNetwork
// when Network may return something else; they must not block. NewBlockWatcher starts nothing.
func NewBlockWatcher(source BlockSource, onChange, onNetwork func()) *BlockWatcher {
	w := &BlockWatcher{onChange: onChange, onNetwork: onNetwork}
	open := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		opened, err := source.Watch(ctx, o)
		if err != nil {
			return nil, err
		}
		w.setProblem("")
		return bounded(opened, trustFor), nil
	}
	w.watcher = watcher{
		what:     "IPBlocks",
		informer: newInformer(source, fields.Everything(), &v1beta1.IPBlock{}, source.List, open),
		handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    w.see,
			UpdateFunc: func(_, object any) { w.see(object) },
			DeleteFunc: w.lose,
		},
	}
	return w
}

// Run watches until ctx ends. A definition that is missing, or that the agent may not read, is tried again and again.
func (w *BlockWatcher) Run(ctx context.Context) error {
	if err := w.informer.SetWatchErrorHandlerWithContext(w.report); err != nil {
		return fmt.Errorf("watch IPBlocks: %w", err)
	}
	registration, err := w.prepare()
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.await(ctx, registration.HasSyncedChecker().Done())
	}()
	w.informer.RunWithContext(ctx)
	<-done
	return nil
}

// await waits for the first list, but not for long.
func (w *BlockWatcher) await(ctx context.Context, listed <-chan struct{}) {
	impatient := time.NewTimer(patience)
	defer impatient.Stop()
	select {
	case <-ctx.Done():
		return
	case <-listed:
	case <-impatient.C:
	}
	w.change(func() { w.ended = true })
}

// Network returns the blocks of the public network of a name. While no IPBlock says who has which address, those count,
// too, that published Services name; listed is false before these were listed. ok is false while the first list is
// awaited: nothing may be concluded then.
func (w *BlockWatcher) Network(name string, services []*corev1.Service, listed bool) (network []contract.NetworkBlock,
	ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.Network(name, services), w.ended && (listed || w.known.KnowsAllocations())
}

// Networks returns the blocks that are assigned to each public network, by its name.
func (w *BlockWatcher) Networks() map[string][]contract.NetworkBlock {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.Networks()
}

// Allocated reports whether an address is allocated to a Service.
func (w *BlockWatcher) Allocated(service *corev1.Service, address netip.Addr) blocks.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.Allocated(service, address)
}

func (w *BlockWatcher) see(object any) {
	if block, ok := object.(*v1beta1.IPBlock); ok {
		w.change(func() { w.known.See(block) })
	}
}

func (w *BlockWatcher) lose(object any) {
	if last, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = last.Obj
	}
	if block, ok := object.(*v1beta1.IPBlock); ok {
		w.change(func() { w.known.Lose(block.Name) })
	}
}

// change makes a change, and reports it.
func (w *BlockWatcher) change(what func()) {
	w.mu.Lock()
	before := w.shown()
	what()
	after := w.shown()
	w.mu.Unlock()
	w.onChange()
	if !reflect.DeepEqual(before, after) {
		w.onNetwork()
	}
}

// shown is all that Network depends on, besides the Services.
func (w *BlockWatcher) shown() any {
	return []any{w.known.Networks(), w.known.KnowsAllocations(), w.ended}
}

// report logs why IPBlocks cannot be watched, each reason once. The end of a watch, or a version that is too old, are
// none.
func (w *BlockWatcher) report(ctx context.Context, _ *cache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ctx.Err() != nil {
		return
	}
	reason := client.Explain("watch the IPBlocks", err).Error()
	if w.setProblem(reason) {
		klog.FromContext(ctx).Info("Failed to read the IPBlocks, retrying; until then what was known of them counts",
			"reason", reason)
		w.change(func() { w.ended = true })
	}
}

// setProblem notes why IPBlocks cannot be watched, empty when they are. It reports whether that is new.
func (w *BlockWatcher) setProblem(reason string) (isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = reason != w.problem
	w.problem = reason
	return isNew
}

// bounded ends a watch that shows nothing for long, not even a bookmark, so that a connection that no end closes hides
// a change for no longer. The next watch begins where it ended.
func bounded(source watch.Interface, silence time.Duration) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer source.Stop()
		silent := time.NewTimer(silence)
		defer silent.Stop()
		for {
			select {
			case <-proxy.StopChan():
				return
			case <-silent.C:
				return
			case event, open := <-source.ResultChan():
				if !open {
					return
				}
				silent.Reset(silence)
				select {
				case events <- event:
				case <-proxy.StopChan():
					return
				}
			}
		}
	}()
	return proxy
}

// stripBlock keeps what the agent reads of an IPBlock.
func stripBlock(block *v1beta1.IPBlock) *v1beta1.IPBlock {
	kept := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: block.Name, UID: block.UID,
		ResourceVersion: block.ResourceVersion}}
	kept.Spec.Attachment = block.Spec.Attachment
	kept.Spec.Purpose = block.Spec.Purpose
	kept.Status.CIDR = block.Status.CIDR
	kept.Status.Gateway = block.Status.Gateway
	kept.Status.Allocations = block.Status.Allocations
	for _, c := range block.Status.Conditions {
		if c.Type == v1beta1.ConditionAssigned || c.Type == v1beta1.ConditionAllocatable {
			kept.Status.Conditions = append(kept.Status.Conditions,
				metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return kept
}
