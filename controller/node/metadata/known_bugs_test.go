package metadata

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestOneRejectedNodeDoesNotBlockOthers: a Node that cannot be written must not end the pass over all Nodes.
//
//proves:known-bugs/one-node-fails
func TestOneRejectedNodeDoesNotBlockOthers(t *testing.T) {
	const refused = 8 // a pass that ends at the first of them would need one pass for each, 5 s apart
	d := newHarness(t, serverNode("good", simtest.Server1ID))
	for i := range refused {
		if err := d.client.Tracker().Add(serverNode(fmt.Sprint("refused-", i), simtest.Server2ID)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	tried := map[string]bool{}
	d.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || patch.GetName() == "good" {
			return false, nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		tried[patch.GetName()] = true
		return true, nil, errors.New("denied by a webhook")
	})
	d.config.Window = time.Hour
	d.run()
	d.eventually("good", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
	d.eventually("good", func(map[string]string) error {
		mu.Lock()
		defer mu.Unlock()
		if len(tried) < refused {
			return fmt.Errorf("%d of %d Nodes were tried", len(tried), refused)
		}
		return nil
	})
}
