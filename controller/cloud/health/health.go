// Package health answers whether the controller is alive, and what ails the services that it depends on.
package health

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// leaseTolerance is how long after its end the process may hold on to a Lease that it does not renew.
const leaseTolerance = 20 * time.Second

// Detail tells of a service that the controller depends on. The process is healthy without it: a liveness
// probe on /healthz must not restart the process because somebody else is down. Only whoever asks for the
// detail by its name, /healthz/<name>, is told.
type Detail struct {
	name string
	err  func() error
}

// NewDetail returns the detail of that name. err is nil while the service does its work; its text is shown
// to whoever may read the detail.
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

// Election fails when the process leads without renewing its Lease, as when the election is stuck: the
// process should have ended then.
type Election struct {
	duration time.Duration
	renewed  func() time.Time
	now      func() time.Time
}

// NewElection returns the check. duration is how long a Lease is valid, renewed tells when the process last
// renewed its own; the zero time means that it does not lead.
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
