package store

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// cp is the control plane of all tests of this package.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }

const network = "60473c2509268bc77fd06d29"

// configMaps returns the ConfigMaps of kube-system, without a view, as an agent reaches them.
func configMaps(t *testing.T) typedcorev1.ConfigMapInterface {
	t.Helper()
	client, err := kubernetes.NewForConfig(ClientConfig(cp.Config()))
	if err != nil {
		t.Fatal(err)
	}
	all := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if err := all.Delete(t.Context(), contract.AnnouncerView, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return all
}

// TestEveryChangeCounts: writers that each add one to a number lose no increment, in any order.
func TestEveryChangeCounts(t *testing.T) {
	objects := configMaps(t)
	const writers, times = 4, 10
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			s := New(objects, network)
			for done := 0; done < times; {
				before, err := s.Read(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(before.View) // nothing is none
				before.View = strconv.Itoa(n + 1)
				after, err := s.Write(t.Context(), before)
				switch {
				case errors.Is(err, ErrConflict):
				case err != nil:
					t.Error(err)
					return
				case after.View != before.View || after.Version == before.Version:
					t.Errorf("%+v was written, %+v is stored", before, after)
					return
				default:
					done++
				}
			}
		})
	}
	group.Wait()
	if last, err := New(objects, network).Read(t.Context()); err != nil || last.View != strconv.Itoa(writers*times) {
		t.Errorf("the view is %+v (%v), want %d", last, err, writers*times)
	}
}

// TestAnotherNetwork: a cluster that moves to another network starts with a new view, and the nodes that have not moved
// yet keep theirs, whoever writes.
func TestAnotherNetwork(t *testing.T) {
	objects := configMaps(t)
	former := New(objects, network)
	old, err := former.Write(t.Context(), Document{View: "old"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(objects, "60473c2509268bc77fd06d30")
	d, err := s.Read(t.Context())
	if err != nil || d.View != "" || d.Version == "" {
		t.Fatalf("%+v, %v; want no view in an object that is there", d, err)
	}
	d.View = "new"
	if _, err := s.Write(t.Context(), d); err != nil {
		t.Error(err)
	}
	old.View = "older"
	if _, err := former.Write(t.Context(), old); !errors.Is(err, ErrConflict) {
		t.Errorf("the object has changed: %v", err)
	}
	if old, err = former.Read(t.Context()); err != nil || old.View != "old" {
		t.Fatalf("the view of the former network is %+v, %v", old, err)
	}
	old.View = "still old"
	if _, err := former.Write(t.Context(), old); err != nil {
		t.Error(err)
	}
	if d, err := s.Read(t.Context()); err != nil || d.View != "new" {
		t.Errorf("the view of the new network is %+v, %v", d, err)
	}
}

// TestOutdatedIsRefused: also when the object was deleted or created meanwhile.
func TestOutdatedIsRefused(t *testing.T) {
	objects := configMaps(t)
	s := New(objects, network)
	first, err := s.Write(t.Context(), Document{View: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), Document{View: "another first"}); !errors.Is(err, ErrConflict) {
		t.Errorf("a second first view: %v", err)
	}
	if err := objects.Delete(t.Context(), contract.AnnouncerView, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	first.View = "2"
	if _, err := s.Write(t.Context(), first); !errors.Is(err, ErrConflict) {
		t.Errorf("a view that was deleted: %v", err)
	}
}

// TestUnreachable: an unreachable API server is an error, never the absence of a view.
func TestUnreachable(t *testing.T) {
	config := ClientConfig(cp.Config())
	config.Host = "https://127.0.0.1:1"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := New(client.CoreV1().ConfigMaps(metav1.NamespaceSystem), network)
	if d, err := s.Read(t.Context()); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("read %+v, %v", d, err)
	}
	if d, err := s.Write(t.Context(), Document{}); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("wrote %+v, %v", d, err)
	}
}

func TestWatch(t *testing.T) {
	objects := configMaps(t)
	s := New(objects, network)
	seen := make(chan Document, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, func(d Document) { seen <- d }) }()
	last := Document{}
	// The first may be written before the watch is open.
	for i := range 3 {
		var err error
		last.View = strconv.Itoa(i)
		if last, err = s.Write(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	timeout := time.After(20 * time.Second)
	for got := (Document{}); got != last; {
		select {
		case got = <-seen:
		case <-timeout:
			t.Fatalf("%+v was not seen within 20 s", last)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Watch returned %v after its context ended", err)
	}
}
