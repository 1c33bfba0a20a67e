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

// network has the API of each process at a host of its own. The controller's client takes http.DefaultTransport for
// tokens and all else.
type network struct{ hosts sync.Map }

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(request *http.Request) (*http.Response, error) {
	found, known := n.hosts.Load(request.URL.Host)
	if !known {
		return nil, fmt.Errorf("no host %s", request.URL.Host)
	}
	return found.(http.RoundTripper).RoundTrip(request)
}

// join gives a process a host and returns its URL.
func (n *network) join(p *process) string {
	host := fmt.Sprintf("api-%p.test", p)
	n.hosts.Store(host, p)
	return "http://" + host
}

// internet is what all processes are in.
var internet = &network{}

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
