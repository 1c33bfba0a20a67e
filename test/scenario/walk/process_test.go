package walk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// errDead is what a process learns that is not there any more.
var errDead = errors.New("the process is dead")

// process is one life of the controller. Every call that leaves it passes through it, and it may die before or after
// each of them: from then on nothing that it does has an effect.
type process struct {
	world  *world
	kube   *fake.Clientset
	shared informers.SharedInformerFactory
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	dead bool
	// steps are the places to die at that were passed; dieAt is the one to die at, 0 for none.
	steps, dieAt int
	// freeze is for how long the process is stopped at its next purchase, after its last look and before the request
	// leaves. While it is frozen no other call of it has an effect.
	freeze time.Duration
	frozen bool
}

func newProcess(w *world) *process {
	p := &process{world: w, kube: &fake.Clientset{}}
	react := ktesting.ObjectReaction(w.store)
	p.kube.AddReactor("*", "*", func(action ktesting.Action) (bool, runtime.Object, error) {
		if !p.mayCall() {
			return true, nil, errDead
		}
		w.judgeAction(action)
		handled, object, err := react(action)
		if !p.mayCall() {
			return true, nil, errDead
		}
		return handled, object, err
	})
	p.kube.AddWatchReactor("*", w.store.ReactToWatch)
	p.shared = informers.NewSharedInformerFactory(p.kube, 0)
	return p
}

// mayCall passes a place to die at and reports whether the process still acts.
func (p *process) mayCall() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		return false
	}
	p.steps++
	if p.steps == p.dieAt {
		p.die()
	}
	return !p.dead
}

// die is called with the lock held.
func (p *process) die() {
	p.dead = true
	p.cancel()
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.die()
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// isLost reports whether another process has to take over: this one is dead or stopped.
func (p *process) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead || p.frozen
}

// RoundTrip implements http.RoundTripper: the simulator answers in memory.
func (p *process) RoundTrip(request *http.Request) (*http.Response, error) {
	if !p.mayCall() {
		return nil, errDead
	}
	purchase := request.Method == http.MethodPost && request.URL.Path == blocksPath
	stopped := purchase && p.stop()
	if purchase {
		defer p.world.judgePurchase(p.world.blocks(), stopped)
	}
	response, err := p.exchange(request)
	if stopped || !p.mayCall() {
		p.kill() // a process that was stopped for so long has lost its lease, and ends
		return nil, errDead
	}
	return response, err
}

// stop stops the process for as long as was arranged, if it was. Not even the end of its context reaches it.
func (p *process) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := p.freeze
	p.freeze = 0
	if pause == 0 {
		return false
	}
	p.world.count.faults.Add(1)
	p.frozen = true
	p.mu.Unlock()
	time.Sleep(pause)
	p.mu.Lock()
	p.frozen = false
	return true
}

// exchange hands a request to the simulator, which answers, never answers, or breaks the connection. A request that
// was stopped was on its way before: its time-out does not concern the simulator.
func (p *process) exchange(request *http.Request) (*http.Response, error) { //nolint:contextcheck // see above
	received := request.Clone(context.WithoutCancel(request.Context()))
	received.RequestURI = request.URL.RequestURI()
	received.RemoteAddr = "192.0.2.1:1234"
	if received.Body == nil {
		received.Body = http.NoBody
	}
	served, cancel := context.WithCancel(received.Context())
	stop := context.AfterFunc(request.Context(), cancel)
	type outcome struct {
		response *http.Response
		err      error
	}
	answered := make(chan outcome, 1)
	go func() {
		defer cancel()
		defer stop()
		response, err := p.serve(received.WithContext(served)) //nolint:bodyclose // the client closes it
		answered <- outcome{response, err}
	}()
	if request.Context().Err() != nil { // only after a stop
		o := <-answered
		return o.response, o.err
	}
	select {
	case o := <-answered:
		return o.response, o.err
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

func (p *process) serve(request *http.Request) (response *http.Response, err error) {
	recorder := httptest.NewRecorder()
	defer func() {
		switch broken := recover(); broken {
		case nil:
		case http.ErrAbortHandler: // the server breaks the connection
			response = nil
			err = io.ErrUnexpectedEOF
		default:
			panic(broken)
		}
	}()
	p.world.handler.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}
