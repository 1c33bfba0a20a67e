//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

const (
	// vlanReconcilerVariable makes a process of this test binary the reconciler of its network namespace.
	vlanReconcilerVariable = "PNAP_VLAN_RECONCILER"
	// vlanReconcilerDies is after how many changes of the network that process is killed.
	vlanReconcilerDies = "PNAP_VLAN_RECONCILER_DIES"
	// The user otherUID owns nothing, so that only its capabilities help the reconciler: it cannot write below
	// /proc/sys either.
	otherUID = 65534
)

// mortal kills its process after some changes.
type mortal struct {
	vlan.Kernel
	left atomic.Int64
}

func (m *mortal) tick() {
	if m.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) Make(name string, parent, id, mtu int) (int, error) {
	defer m.tick()
	return m.Kernel.Make(name, parent, id, mtu)
}

func (m *mortal) Note(index int, change func(*ownership.Record)) error {
	defer m.tick()
	return m.Kernel.Note(index, change)
}

func (m *mortal) SetSettings(index int, s ownership.Settings) error {
	defer m.tick()
	return m.Kernel.SetSettings(index, s)
}

func (m *mortal) SetUp(index int, up bool) error {
	defer m.tick()
	return m.Kernel.SetUp(index, up)
}

// TestVLANReconcilerProcess is the body of a reconciler's process; in any other it has nothing to test. Expectations
// come in on the standard input, events go out on the standard output, a line of JSON each.
func TestVLANReconcilerProcess(t *testing.T) {
	if os.Getenv(vlanReconcilerVariable) == "" {
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	kernel := &mortal{Kernel: vlan.System{Journal: &ownership.Journal{}}}
	if dies, err := strconv.Atoi(os.Getenv(vlanReconcilerDies)); err == nil {
		kernel.left.Store(int64(dies))
	}
	var expected atomic.Pointer[check.Expected]
	expected.Store(&check.Expected{})
	out := json.NewEncoder(os.Stdout)
	reconciler := vlan.New(vlan.Config{
		Expected: func() check.Expected { return *expected.Load() }, Kernel: kernel, Prober: arp.NewProber(),
		Watch:  netstate.Watch,
		Record: func(e vlan.Event) { _ = out.Encode(e) },
	})
	go func() {
		lines := json.NewDecoder(os.Stdin)
		for {
			var e check.Expected
			if lines.Decode(&e) != nil {
				return
			}
			expected.Store(&e)
			reconciler.Wake()
		}
	}()
	if err := reconciler.Run(ctx); err != nil {
		t.Error(err)
	}
}

// vlanReconciler is a reconciler's process in the node's namespace. It has the capabilities NET_ADMIN and NET_RAW and
// runs as the user otherUID.
type vlanReconciler struct {
	n      *network
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	mu     sync.Mutex
	events []vlan.Event
	ended  chan struct{}
}

// startVLANReconciler starts a process in the namespace of the calling thread; it dies after some changes unless dies
// is 0.
func startVLANReconciler(n *network, dies int) *vlanReconciler {
	n.t.Helper()
	self, err := os.Executable()
	n.must("find the test binary", err)
	cmd := exec.CommandContext(context.WithoutCancel(n.t.Context()), self, "-test.run=^TestVLANReconcilerProcess$",
		"-test.timeout=5m")
	cmd.Env = append(os.Environ(), vlanReconcilerVariable+"=1", vlanReconcilerDies+"="+strconv.Itoa(dies))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: otherUID, Gid: otherUID},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW},
	}
	cmd.Stderr = os.Stderr
	k := &vlanReconciler{n: n, cmd: cmd, ended: make(chan struct{})}
	k.stdin, err = cmd.StdinPipe()
	n.must("pipe", err)
	stdout, err := cmd.StdoutPipe()
	n.must("pipe", err)
	n.must("start the reconciler", cmd.Start())
	go k.read(stdout)
	n.t.Cleanup(k.kill)
	return k
}

func (k *vlanReconciler) read(stdout io.Reader) {
	defer close(k.ended)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e vlan.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Reason != "" {
			k.mu.Lock()
			k.events = append(k.events, e)
			k.mu.Unlock()
		}
	}
	_ = k.cmd.Wait() // it is killed
}

// kill ends the process without a chance to tidy up.
func (k *vlanReconciler) kill() {
	_ = k.cmd.Process.Kill()
	<-k.ended
}

// died waits for the process to have died by itself.
func (k *vlanReconciler) died() {
	k.n.t.Helper()
	select {
	case <-k.ended:
	case <-time.After(time.Minute):
		k.n.t.Fatal("the reconciler still runs after a minute")
	}
}

func (k *vlanReconciler) expect(e check.Expected) {
	k.n.t.Helper()
	k.n.must("send what to expect", json.NewEncoder(k.stdin).Encode(e))
}

// reported reports whether an event with that reason was reported.
func (k *vlanReconciler) reported(reason string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

func (k *vlanReconciler) history() []vlan.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]vlan.Event(nil), k.events...)
}
