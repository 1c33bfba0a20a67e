package walk

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// logVariable is the environment variable that has the logs of the walks printed.
const logVariable = "PNAP_WALK_LOG"

// hostNetwork has the API of each process at a host of its own. The controller's client takes http.DefaultTransport for
// tokens and all else.
type hostNetwork struct {
	mu    sync.Mutex
	hosts map[string]*process
}

// RoundTrip implements http.RoundTripper.
func (n *hostNetwork) RoundTrip(request *http.Request) (*http.Response, error) {
	n.mu.Lock()
	found := n.hosts[request.URL.Host]
	n.mu.Unlock()
	if found == nil {
		return nil, fmt.Errorf("no host %s", request.URL.Host)
	}
	return found.RoundTrip(request)
}

// join gives a process a host and returns its URL.
func (n *hostNetwork) join(p *process) string {
	host := fmt.Sprintf("api-%p.test", p)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = p
	return "http://" + host
}

// internet is what all processes are in.
var internet = &hostNetwork{hosts: map[string]*process{}}

// TestMain silences what is shared by all walks: logs, of which there would be millions of lines, and the pause of
// client-go after an error, which compares the times of different walks.
func TestMain(m *testing.M) {
	http.DefaultTransport = internet
	utilruntime.ErrorHandlers = nil
	if os.Getenv(logVariable) == "" {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}
