// Package health shows on the health endpoint how a service that the controller depends on does.
package health

import (
	"net/http"
	"strings"

	"k8s.io/controller-manager/pkg/healthz"
)

// Detail is a controller that does nothing but tell of a dependency. The process is healthy without it: a
// liveness probe on /healthz must not restart the process because somebody else is down. Only whoever asks
// for the detail by its name, /healthz/<name>, is told.
type Detail struct {
	name string
	err  func() error
}

// NewDetail returns the detail of that name. err is nil while the dependency does its work; its text is
// shown to whoever may read the detail.
func NewDetail(name string, err func() error) *Detail { return &Detail{name: name, err: err} }

// Name implements the framework's controller.Interface.
func (d *Detail) Name() string { return d.name }

// HealthChecker implements the framework's controller.HealthCheckable.
func (d *Detail) HealthChecker() healthz.UnnamedHealthChecker { return d }

// Check implements the framework's healthz.UnnamedHealthChecker.
func (d *Detail) Check(request *http.Request) error {
	if !strings.HasSuffix(request.URL.Path, "/"+d.name) {
		return nil
	}
	return d.err()
}
