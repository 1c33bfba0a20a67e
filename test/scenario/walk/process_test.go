package walk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// errDead is what a process learns that is not there any more.
var errDead = errors.New("the process is dead")

// note remembers a call.
func (p *process) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls[max(0, len(p.calls)-9):], fmt.Sprintf(format, args...))
	if minute := time.Now().Truncate(time.Minute); minute != p.minute {
		p.minute = minute
		p.callsInMinute = 0
	}
	p.callsInMinute++
	p.world.count.busiest.raise(int64(p.callsInMinute))
	if p.callsInMinute == maxCalls && !p.world.crowded {
		p.world.fail("a process made %d calls in a minute: it works without pause: %q", maxCalls, p.calls)
		p.die()
	}
}

// bodyOf is the beginning of what a request sends.
func bodyOf(request *http.Request) string {
	if request.GetBody == nil {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	raw, err := io.ReadAll(io.LimitReader(body, 600))
	if err != nil {
		return ""
	}
	return " " + string(raw)
}

// maxCalls is how many calls a process makes at the most in a minute of a walk.
const maxCalls = 3000

// process is one life of the controller. Every call that leaves it passes through it, and it may die before or after
// each of them: from then on nothing that it does has an effect.
type process struct {
	world  *world
	line   *kubefake.Line
	kube   kubernetes.Interface
	blocks *client.IPBlocks
	// networks are the PublicNetworks.
	networks *client.PublicNetworks
	shared   informers.SharedInformerFactory
	cancel   context.CancelFunc
	ended    sync.WaitGroup

	mu   sync.Mutex
	dead bool
	// steps are the places to die at that were passed; dieAt is the one to die at, 0 for none.
	steps, dieAt int
	// doom is the request to die of, nil for none.
	doom *doom
	// freeze is for how long the process is stopped at its next purchase, after its last look and before the request
	// leaves. While it is frozen no other call of it has an effect.
	freeze time.Duration
	frozen bool
	// pauseFor is for how long the process is stopped at its next request to the phoenixNAP API, as by a busy
	// hypervisor; 0 is not at all. paused is closed when it goes on. A process that was stopped for longer than
	// renewDeadline is deposed: it may not change the account any more, and ends soon.
	pauseFor time.Duration
	paused   chan struct{}
	since    time.Time
	deposed  bool
	// late is how much later than its request the next purchase is carried out, whose answer is lost.
	late time.Duration
	// calls are the last ones, to explain a process that works without pause; callsInMinute is how many there were in
	// the minute.
	calls         []string
	minute        time.Time
	callsInMinute int
	// skew is by how much its clock is wrong.
	skew time.Duration
}

// now is the time by the clock of the process.
func (p *process) now() time.Time { return time.Now().Add(p.skew) }

func newProcess(w *world) *process {
	p := &process{world: w, line: w.store.Line()}
	p.skew = w.skew()
	w.delay(p.line)
	kube, err := kubefake.Connect(apiServer{p})
	if err != nil {
		w.t.Fatal(err)
	}
	p.kube = kube
	if p.blocks, err = client.New(kubefake.Config(apiServer{p})); err != nil {
		w.t.Fatal(err)
	}
	if p.networks, err = client.NewPublicNetworks(kubefake.Config(apiServer{p})); err != nil {
		w.t.Fatal(err)
	}
	p.shared = informers.NewSharedInformerFactory(p.kube, 0)
	return p
}

// apiServer is the way of a process to the Kubernetes API.
type apiServer struct{ process *process }

// RoundTrip implements http.RoundTripper: the process may die before a request, and after its effect. A watch is no
// place to die at, because it changes nothing.
func (a apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	p := a.process
	if request.URL.Query().Get("watch") == "true" {
		if p.isDead() {
			return nil, errDead
		}
		return p.line.RoundTrip(request)
	}
	diesAfter := p.begins(request)
	if !p.mayCall() {
		return nil, errDead
	}
	p.note("%s %s%s", request.Method, request.URL.Path, bodyOf(request))
	p.world.judgeDeletion(request)
	p.world.hear(request)
	response, err := p.line.RoundTrip(request)
	if err == nil && p.world.answered != nil {
		p.world.answered(request, response)
	}
	if diesAfter {
		p.kill()
	}
	if !p.mayCall() {
		return nil, errDead
	}
	return response, err
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
	return !p.dead && p.paused == nil
}

// mayCallCloud is mayCall for a request to the phoenixNAP API, at which the process may be stopped for a while. A
// request to the Kubernetes API fails meanwhile instead: it would have timed out when the process goes on.
func (p *process) mayCallCloud() bool {
	p.mu.Lock()
	if p.pauseFor > 0 && p.paused == nil {
		p.pause()
	}
	paused := p.paused
	p.mu.Unlock()
	if paused != nil {
		<-paused
	}
	return p.mayCall()
}

// pause stops every call of the process for a while. It is called with the lock held.
func (p *process) pause() {
	p.world.inject(classStoppedLeader)
	p.paused = make(chan struct{})
	p.since = time.Now()
	stopped := p.pauseFor
	p.pauseFor = 0
	time.AfterFunc(stopped, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.paused)
		p.paused = nil
		p.world.thawed()
		if stopped > renewDeadline {
			p.deposed = true
			time.AfterFunc(retryPeriod, p.kill) // it reads that another process holds the Lease
		}
	})
}

// mayChange is the fence of the leader election.
func (p *process) mayChange() error {
	if !p.mayCallCloud() {
		return errDead
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deposed {
		p.world.count.fenced.Add(1)
		return &leader.FencedError{Deadline: renewDeadline}
	}
	return nil
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

func (p *process) isDeposed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deposed
}

// isLost reports whether another process has to take over: this one is dead or stopped.
func (p *process) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead || p.frozen || p.deposed || p.paused != nil && time.Since(p.since) > leaseDuration
}

// RoundTrip implements http.RoundTripper: the simulator answers in memory.
func (p *process) RoundTrip(request *http.Request) (*http.Response, error) {
	p.note("%s %s", request.Method, request.URL.Path)
	diesAfter := p.begins(request)
	if request.Method == http.MethodGet && !p.mayCallCloud() || !p.mayCall() {
		return nil, errDead
	}
	purchase := request.Method == http.MethodPost && request.URL.Path == blocksPath
	if purchase {
		if late := p.takeLate(); late > 0 {
			return p.deliverLate(request, late)
		}
	}
	if request.Method != http.MethodGet {
		p.world.judgeChange(p, request)
	}
	stopped := purchase && p.stop()
	if purchase {
		if !stopped {
			p.world.judgeIntent(p, request)
		}
		defer p.world.judgePurchase(p.world.blocks(), stopped)
	}
	p.world.hear(request)
	response, err := p.exchange(request)
	if diesAfter {
		p.kill()
	}
	if purchase {
		p.world.noteFreshTag(response)
	}
	if p.isLost() { // its successor, which is the same client, does not know of its failures
		p.world.sim.ClientRestarted(p.world.client)
	}
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

// takeLate returns by how much the next purchase is late, once.
func (p *process) takeLate() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.late
	p.late = 0
	return late
}

// deliverLate breaks the connection; the API carries the request out later, even if the process has ended.
func (p *process) deliverLate(request *http.Request, late time.Duration) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	p.world.inject(classLatePurchase)
	p.ended.Go(func() {
		time.Sleep(late)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(request.Context()), time.Minute)
		defer cancel()
		again := request.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		before := p.world.blocks()
		_ = p.serve(unheard{httptest.NewRecorder()}, received(again).WithContext(ctx)) // no one hears of it
		p.world.judgePurchase(before, true)
	})
	return nil, io.ErrUnexpectedEOF
}

// unheard is the connection for an answer that reaches no one.
type unheard struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (unheard) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// received is a request as the simulator receives it. One that was stopped was on its way before: its time-out does not
// concern the simulator.
func received(request *http.Request) *http.Request {
	accepted := request.Clone(context.WithoutCancel(request.Context()))
	accepted.RequestURI = request.URL.RequestURI()
	accepted.RemoteAddr = "192.0.2.1:1234"
	if accepted.Body == nil {
		accepted.Body = http.NoBody
	}
	return accepted
}

// exchange hands a request to the simulator, which answers, never answers, or breaks the connection.
func (p *process) exchange(request *http.Request) (*http.Response, error) { //nolint:contextcheck // see received
	accepted := received(request)
	ctx, cancel := context.WithCancel(accepted.Context())
	stop := context.AfterFunc(request.Context(), cancel)
	recorder := httptest.NewRecorder()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		defer stop()
		served <- p.serve(recorder, accepted.WithContext(ctx))
	}()
	if request.Context().Err() != nil { // only after a stop
		return answer(recorder, <-served)
	}
	select {
	case err := <-served:
		return answer(recorder, err)
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

// answer is what the simulator wrote, unless it broke the connection.
func answer(recorder *httptest.ResponseRecorder, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// serve has the simulator answer; the error says that it breaks the connection.
func (p *process) serve(w http.ResponseWriter, request *http.Request) (err error) {
	defer func() {
		switch broken := recover(); broken {
		case nil:
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		default:
			panic(broken)
		}
	}()
	p.world.handler.ServeHTTP(w, request)
	return nil
}
