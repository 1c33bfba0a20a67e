//go:build linux

package cluster

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// programs runs programs that end when they are asked to, or when the test says so.
type programs struct {
	mu      sync.Mutex
	started []string
	ended   map[int]chan struct{}
}

func (p *programs) StartProcess(_ context.Context, program lab.Program) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, program.Host)
	p.ended[len(p.started)] = make(chan struct{})
	return len(p.started), nil
}

func (p *programs) Signal(_ context.Context, id int, signal syscall.Signal) error {
	if signal != syscall.SIGTERM {
		return fmt.Errorf("program %d gets signal %d", id, signal)
	}
	p.end(id)
	return nil
}

func (p *programs) end(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.ended[id])
}

func (p *programs) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.started)
}

func (p *programs) Await(ctx context.Context, id int, timeout time.Duration) (lab.Process, error) {
	p.mu.Lock()
	ended := p.ended[id]
	p.mu.Unlock()
	select {
	case <-ended:
		return lab.Process{Exited: true}, nil
	case <-time.After(timeout):
		return lab.Process{}, nil
	case <-ctx.Done():
		return lab.Process{}, ctx.Err()
	}
}

// TestSupervisorRunsWhatIsAdmitted: one program where the label is, started again after a crash, not after it was
// ended.
func TestSupervisorRunsWhatIsAdmitted(t *testing.T) {
	w, err := loadWorkload(shipped)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &programs{ended: map[int]chan struct{}{}}
		s := &supervisor{workload: w, programs: p, program: "kube-vip", running: map[string]int{},
			dead: map[string]bool{}, cancel: cancel}
		node := func(label string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a",
				Labels: map[string]string{contract.NodeVLANReady: label}}}
		}
		step := func(what string, started int, running bool, act func() error) {
			t.Helper()
			if err := act(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			synctest.Wait()
			if p.count() != started || s.runsOn("srv-a") != running {
				t.Errorf("%s: %d programs were started, runs now: %t; want %d, %t", what, p.count(), s.runsOn("srv-a"),
					started, running)
			}
		}
		sync := func(label string) func() error { return func() error { return s.sync(ctx, node(label)) } }
		crash := func() error { p.end(p.count()); return nil }
		step("not admitted", 0, false, sync("false"))
		step("admitted", 1, true, sync("true"))
		step("still", 1, true, sync("true"))
		step("crashed", 2, true, crash)
		step("a long time later", 2, true, func() error { time.Sleep(3 * awaitExit); return nil })
		step("crashed once more", 3, true, crash)
		step("not admitted any more", 3, false, sync("false"))
		step("admitted again", 4, true, sync("true"))
		step("the server died", 4, false, func() error { s.forget("srv-a"); p.end(4); return nil })
		step("and is admitted", 4, false, sync("true"))
		s.stop()
	})
}
