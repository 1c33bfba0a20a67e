package store

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// watched are ConfigMaps whose watches the test holds. Each one begins with the object as it is.
type watched struct {
	ConfigMaps
	mu      sync.Mutex
	current corev1.ConfigMap
	opened  []*watch.FakeWatcher
	asked   []metav1.ListOptions
	seen    Document
}

func (w *watched) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := watch.NewFakeWithChanSize(1, false)
	next.Add(w.current.DeepCopy())
	w.opened = append(w.opened, next)
	w.asked = append(w.asked, o)
	return next, nil
}

// see is what the store calls with each document.
func (w *watched) see(d Document) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = d
}

// state returns the watches that were opened, the oldest first, and the newest document.
func (w *watched) state() ([]*watch.FakeWatcher, Document) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.opened), w.seen
}

// newest is the watch that was opened last.
func (w *watched) newest() *watch.FakeWatcher {
	opened, _ := w.state()
	return opened[len(opened)-1]
}

// set changes the object behind the watches that are open.
func (w *watched) set(version, view string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerView, ResourceVersion: version},
		Data:       map[string]string{network: view},
	}
}

// TestSilentWatch: a watch that shows nothing is closed and opened again after 150 s, so that a connection that no end
// closes hides a view for no longer; each bookmark and each event says that it lives.
func TestSilentWatch(t *testing.T) {
	for name, tc := range map[string]struct {
		// sign is what the API server sends each minute for ten minutes, before it falls silent.
		sign func(*watch.FakeWatcher)
		// before is when the first watch is last seen open.
		before time.Duration
	}{
		"nothing": {nil, 0},
		"bookmarks": {func(w *watch.FakeWatcher) {
			w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
		}, 10 * time.Minute},
		"events": {func(w *watch.FakeWatcher) { w.Modify(&corev1.ConfigMap{}) }, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := &watched{}
				objects.set("1", "first")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = New(objects, network).Watch(ctx, objects.see) }()
				synctest.Wait()
				for passed := time.Duration(0); passed < tc.before; passed += time.Minute {
					time.Sleep(time.Minute)
					tc.sign(objects.newest())
					synctest.Wait()
				}
				objects.set("2", "second") // and the watch does not show it
				time.Sleep(149 * time.Second)
				synctest.Wait()
				if opened, seen := objects.state(); len(opened) != 1 || seen.View == "second" {
					t.Fatalf("%d watches after 149 s of silence, seen %+v; want the first", len(opened), seen)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				opened, seen := objects.state()
				if len(opened) != 2 || !opened[0].IsStopped() {
					t.Fatalf("%d watches after 151 s of silence, the first is closed: %t; want a second one",
						len(opened), opened[0].IsStopped())
				}
				if want := (Document{Version: "2", View: "second"}); seen != want {
					t.Errorf("seen %+v, want %+v", seen, want)
				}
				if o := objects.asked[0]; !o.AllowWatchBookmarks || *o.TimeoutSeconds <= 150 {
					t.Errorf("it asks for %+v, want bookmarks, and to be kept open for longer than it is trusted", o)
				}
			})
		})
	}
}
