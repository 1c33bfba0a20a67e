package walk

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// rulesOfTheAccount are those about what the API of phoenixNAP shows and says.
var rulesOfTheAccount = []rule{
	{name: "7 a Service keeps its finalizer until the account shows nothing of it", bought: 1,
		live: finalizerOfAService},
	{name: "7 nothing is bought for an object without its finalizer", bought: 1, live: finalizerOfAnObject},
	{name: "9 a pause of a year that the API asks for is bounded", bought: 1, live: pauseOfAYear},
	{name: "9 a purchase that is recorded in the future is bounded", bought: 1, live: clockOfAnotherProcess},
}

// finalizerOfAService: the network takes its time to give a block up.
func finalizerOfAService(w *world) {
	w.ordered("web", nil)
	w.served("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID, Status: "BUSY"})
	w.remove("web")
	time.AfterFunc(5*time.Minute, w.ready)
	for range 15 * 60 {
		time.Sleep(time.Second)
		w.look()
		service, found := w.service("web")
		held := found && len(service.Finalizers) > 0
		if left := w.ours(); !held && len(left) > 0 {
			w.fail("Service web is released before %v", left)
			return
		}
	}
	w.gone("web")
}

// finalizerOfAnObject: a webhook removes the finalizer from each IPBlock.
func finalizerOfAnObject(w *world) {
	w.mu.Lock()
	w.webhook = "objects"
	w.mu.Unlock()
	w.ordered("web", nil)
	time.Sleep(20 * time.Minute)
	w.bought(0)
	w.mu.Lock()
	w.webhook = ""
	w.mu.Unlock()
	w.served("web")
	service, _ := w.service("web")
	if object := w.object(service); !slices.Contains(object.Finalizers, contract.IPBlockFinalizer) {
		w.fail("a block was bought for an object without a finalizer")
	}
}

// pauseOfAYear: a proxy before the API is wrong about when to come back.
func pauseOfAYear(w *world) {
	w.arm(pnapsim.Fault{Path: blocksPath, Action: pnapsim.FaultStatus, Status: http.StatusTooManyRequests,
		RetryAfterText: fmt.Sprint(365 * 24 * 60 * 60)})
	time.Sleep(time.Minute)
	w.ordered("web", nil)
	w.served("web")
}

// clockOfAnotherProcess: a process whose clock is hours ahead asks for a block, gets no answer and ends.
func clockOfAnotherProcess(w *world) {
	w.process.kill()
	w.clock = 6 * time.Hour
	w.look()
	w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultReset})
	w.once(to(http.MethodPost, blocksPath), func() {
		time.AfterFunc(time.Second, w.process.kill)
		w.clock = 0
	})
	w.ordered("web", nil)
	w.served("web")
}
