package diagnose

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// SchemaVersion is the version of the JSON document; it grows when a field changes its meaning or goes.
const SchemaVersion = 1

// Exit codes of the command.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitUndetermined = 3
)

// Document is everything that a diagnosis says.
type Document struct {
	SchemaVersion int    `json:"schemaVersion"`
	Node          string `json:"node"`
	// Network says what was expected, in a line.
	Network string `json:"network"`
	// APIServer says why the API server could not be asked; empty when it could.
	APIServer string `json:"apiServer,omitempty"`
	// Renderer is the tool that seems to configure the machine's network.
	Renderer check.Tool `json:"renderer,omitempty"`
	// Findings are the node's checks, then those of the addresses of Services.
	Findings []check.Finding `json:"checks"`
}

// ExitCode sums the findings up: a failure outweighs what could not be determined; warnings are no failure.
func (d Document) ExitCode() int {
	code := ExitOK
	for _, f := range d.Findings {
		switch f.Status {
		case check.Fail:
			return ExitFailed
		case check.Unknown:
			code = ExitUndetermined
		case check.OK, check.Warn, check.Skip:
		default:
			code = ExitUndetermined
		}
	}
	return code
}

// JSON writes the document for machines.
func (d Document) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("write the diagnosis: %w", err)
	}
	return nil
}
