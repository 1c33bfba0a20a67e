//go:build linux

package labtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/dataplane"
)

// patience is how long a caller waits that has the state already.
const patience = 5 * time.Second

// feed serves one state of the data plane, as the simulated API would; it never changes.
type feed dataplane.DataPlane

// ServeHTTP answers at once if the client does not know the state.
func (f feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, err := strconv.ParseInt(r.URL.Query().Get("revision"), 10, 64)
	if err != nil || r.URL.Path != dataplane.Path {
		http.Error(w, "ask for "+dataplane.Path+"?revision=<number>", http.StatusBadRequest)
		return
	}
	if known >= f.Revision {
		select {
		case <-time.After(patience):
		case <-r.Context().Done():
			return
		}
	}
	_ = json.NewEncoder(w).Encode(f) // who asked has gone then
}
