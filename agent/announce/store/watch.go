package store

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// watchAgain is the pause after the end of a watch, watchFor how long the API server keeps one open.
	watchAgain = time.Second
	watchFor   = 5 * time.Minute
	// trustFor is how long a watch is trusted that shows nothing: the API server sends a bookmark about every minute.
	trustFor = 150 * time.Second
)

// follow handles one watch of the object with that name in kube-system until it ends, or shows nothing for long. It
// calls observe with each state of the object, and with an empty one when it is deleted.
func follow[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, name string, open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	observe func(P),
) error {
	seconds := int64(watchFor / time.Second)
	watcher, err := open(ctx, metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
	})
	if err != nil {
		return fmt.Errorf("watch %T %s/%s: %w", *new(T), metav1.NamespaceSystem, name, err)
	}
	defer watcher.Stop()
	silent := time.NewTimer(trustFor)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-silent.C:
			return nil // the next one begins with the object as it is
		case event, open := <-watcher.ResultChan():
			if !open {
				return nil
			}
			silent.Reset(trustFor)
			if event.Type == watch.Bookmark {
				continue // it has nothing but a version
			}
			switch object := event.Object.(type) {
			case P:
				if event.Type == watch.Deleted {
					object = new(T)
				}
				observe(object)
			case *metav1.Status:
				return apierrors.FromObject(object)
			default:
			}
		}
	}
}
