//go:build linux

package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/bench/controller"
)

// TestIdleAgent is the small version of the measurement: memory hardly depends on how many Nodes, Services and pods
// there are, and must not.
func TestIdleAgent(t *testing.T) {
	figures, _, err := Measure(t.Context(), Options{
		Dir: t.TempDir(), Out: t.Output(), Nodes: 50, Services: 30, Pods: 30, Settle: 5 * time.Second,
		Steady: 12 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	memory := 0
	for _, f := range figures {
		if strings.HasPrefix(f.Name, idleFigure) {
			f.Limited = false // the machine does other things, too
		} else {
			memory++
		}
		if err := controller.Report(t.Output(), []controller.Figure{f}); err != nil {
			t.Error(err)
		}
	}
	if memory != 2 {
		t.Errorf("%d figures of memory, want 2: %v", memory, figures)
	}
}

// TestLocalServices is the small version of the measurement, with a stand-in of kube-proxy in this process.
func TestLocalServices(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- ServeLocal(ctx, 20, in) }()
	var ports []int32
	for lines := bufio.NewScanner(out); len(ports) < 20 && lines.Scan(); {
		port, err := strconv.ParseInt(lines.Text(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, int32(port))
	}
	figures, err := MeasureLocal(ctx, ports, 0, 2*time.Second)
	if err != nil || len(figures) != 3 {
		t.Errorf("figures %v, %v", figures, err)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("the stand-in ends with %v", err)
	}
}

const rollup = `00400000-7ffd3a1f2000 ---p 00000000 00:00 0                [rollup]
Rss:               46080 kB
Pss:               46080 kB
Anonymous:         18432 kB
`

func TestMemory(t *testing.T) {
	resident, anonymous, err := memory(rollup)
	if err != nil || resident != 45 || anonymous != 18 {
		t.Errorf("memory %g and %g (%v), want 45 and 18", resident, anonymous, err)
	}
	for _, wrong := range []string{"", "Rss: 1 kB\n", strings.ReplaceAll(rollup, " kB", " MB"),
		strings.Replace(rollup, "18432", "much", 1)} {
		if _, _, err := memory(wrong); err == nil {
			t.Errorf("%q has memory figures", wrong)
		}
	}
}

// TestWatch watches a process whose use is known: 1 ms of a processor in a second, and memory that has a peak.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		looks := 0
		read := func(path string) ([]byte, error) {
			if strings.HasSuffix(path, "smaps_rollup") {
				if looks++; looks == 3 {
					return []byte("Rss: 51200 kB\nAnonymous: 20480 kB\n"), nil
				}
				return []byte(rollup), nil
			}
			stat := "7 (agent) S" + strings.Repeat(" 0", 10) + " " + ticks(time.Since(begun)/1000) + " 0 0"
			return []byte(stat), nil
		}
		u, err := watch(t.Context(), Options{Settle: time.Minute, Steady: 20 * time.Minute}, read, 7)
		if err != nil || u.resident != 50 || u.anonymous != 20 || u.share < 0.09 || u.share > 0.11 {
			t.Errorf("usage %+v (%v), want 50 and 20 MiB and 0.1 %%", u, err)
		}
		gone := func(string) ([]byte, error) { return nil, errors.New("no such file") }
		if _, err := watch(t.Context(), Options{}, gone, 7); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("error %v does not report that the agent has ended", err)
		}
	})
}

func ticks(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds()/10, 10)
}

func TestAddresses(t *testing.T) {
	all, err := addresses(300)
	if err != nil || len(all) != 300 {
		t.Fatalf("%d addresses (%v), want 300", len(all), err)
	}
	seen := map[netip.Addr]bool{}
	for _, a := range all {
		held := false
		for _, b := range blocks()[1:] {
			held = held || b.CIDR.Contains(a) && a != b.Gateway
		}
		if seen[a] || !held {
			t.Errorf("%s: there twice %t, usable %t", a, seen[a], held)
		}
		seen[a] = true
	}
	if _, err := addresses(9*perBlock + 1); err == nil {
		t.Error("more Services than the network has room for")
	}
}

func TestNodeObject(t *testing.T) {
	names := map[string]bool{}
	for i := range 1000 {
		node, err := nodeObject(i)
		if err != nil {
			t.Fatal(err)
		}
		if names[node.Name] || len(node.Status.Images) != 50 {
			t.Fatalf("Node %s: there twice %t, %d images", node.Name, names[node.Name], len(node.Status.Images))
		}
		for _, name := range append(contract.NetworkAnnotations(), contract.NodeReportedIdentity) {
			if node.Annotations[name] == "" {
				t.Fatalf("Node %s lacks annotation %s", node.Name, name)
			}
		}
		names[node.Name] = true
	}
}
