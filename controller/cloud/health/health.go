// Package health checks whether the controller is alive, and reports problems of the services that it depends on.
package health

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// leaseTolerance is how long after its end the process may keep a Lease that it does not renew.
const leaseTolerance = 20 * time.Second

// Detail reports the state of a service that the controller depends on. The process is healthy without it: a liveness
// probe on /healthz must not restart the process because another service is down. Only /healthz/<name> returns the
// detail.
type Detail struct {
	name string
	err  func() error
}

// NewDetail returns the detail with that name. err returns nil while the service works; every client that may read the
// detail gets the text of the error.
func NewDetail(name string, err func() error) *Detail { return &Detail{name: name, err: err} }

// Name implements healthz.HealthChecker of k8s.io/apiserver.
func (d *Detail) Name() string { return d.name }

// Check implements healthz.HealthChecker of k8s.io/apiserver.
func (d *Detail) Check(request *http.Request) error {
	if !strings.HasSuffix(request.URL.Path, "/"+d.name) {
		return nil
	}
	return d.err()
}

// Election fails when the process is the leader but does not renew its Lease, as when the election is stuck: the
// process should have ended then.
type Election struct {
	duration time.Duration
	renewed  func() time.Time
	now      func() time.Time
}

// NewElection returns the check. duration is how long a Lease is valid, renewed returns when the process last renewed
// its Lease; the zero time means that it is not the leader.
func NewElection(duration time.Duration, renewed, now func() time.Time) *Election {
	return &Election{duration: duration, renewed: renewed, now: now}
}

// Name implements healthz.HealthChecker of k8s.io/apiserver; it is the name that the framework gives it.
func (e *Election) Name() string { return "leaderElection" }

// Check implements healthz.HealthChecker of k8s.io/apiserver.
func (e *Election) Check(*http.Request) error {
	renewed := e.renewed()
	if ago := e.now().Sub(renewed); !renewed.IsZero() && ago > e.duration+leaseTolerance {
		return fmt.Errorf("the Lease was last renewed %s ago", ago.Round(time.Second))
	}
	return nil
}
