package main

import (
	"fmt"
	"net/http"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// healthPath is where the framework serves health, and apiDetail the name below it of the phoenixNAP API's.
const (
	healthPath = "/healthz"
	apiDetail  = "phoenixnap-api"
)

// health serves /healthz. The state of the phoenixNAP API is shown there but does not count: a liveness probe must not
// restart the process because another service is down.
type health struct {
	// checks are those of the process, each below /healthz too.
	checks http.Handler
	api    func() pnap.Health
}

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	_, verbose := request.URL.Query()["verbose"]
	switch {
	case request.URL.Path == healthPath+"/"+apiDetail:
		h.serveAPI(w)
	case verbose:
		h.checks.ServeHTTP(&prefixed{ResponseWriter: w, prefix: h.line()}, request)
	default:
		h.checks.ServeHTTP(w, request)
	}
}

// serveAPI answers with the words of the API: unlike /healthz, its path requires a permission.
func (h *health) serveAPI(w http.ResponseWriter) {
	if err := h.api().Err(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprint(w, "ok") // the client may have gone
}

// line shows the state of the API in the form of the checks. Everyone may read it, so it contains no reason.
func (h *health) line() string {
	switch state := h.api(); {
	case state.Failing():
		return "[-]" + apiDetail + " failed: reason withheld, see " + healthPath + "/" + apiDetail +
			" (does not make " + healthPath + " fail)\n"
	case state.LastSuccess.IsZero():
		return "[+]" + apiDetail + " not asked yet\n"
	default:
		return "[+]" + apiDetail + " ok\n"
	}
}

// prefixed writes a prefix before the body of an answer.
type prefixed struct {
	http.ResponseWriter
	prefix string
}

// Write implements http.ResponseWriter.
func (p *prefixed) Write(body []byte) (int, error) {
	prefix := p.prefix
	p.prefix = ""
	if _, err := p.ResponseWriter.Write([]byte(prefix)); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(body)
}
