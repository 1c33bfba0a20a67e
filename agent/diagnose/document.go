// Package diagnose prints what the checks found: the same findings as the Node's conditions, as text or JSON.
package diagnose

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// SchemaVersion is the version of the JSON and YAML document; it grows when a field changes its meaning or goes.
const SchemaVersion = 1

// Exit codes of the command.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitUndetermined = 3
)

// Document is the content of a diagnosis.
type Document struct {
	SchemaVersion int `json:"schemaVersion"`
	// Time is when the node was examined, to the second.
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// ServerID is the phoenixNAP server that the Node runs on; empty where it is not known.
	ServerID string `json:"serverID,omitempty"`
	// Network describes what was expected, in a line.
	Network string `json:"network"`
	// OtherNetworks are the other public networks of the Node with their results; empty where one was asked for.
	OtherNetworks []OtherNetwork `json:"otherNetworks,omitempty"`
	// APIServer is why the API server could not be read; empty when it could, or need not be.
	APIServer string `json:"apiServer,omitempty"`
	// Interface and Uplink are the VLAN interface and the link below it; empty where none was found.
	Interface string `json:"interface,omitempty"`
	Uplink    string `json:"uplink,omitempty"`
	// Renderer is the tool that seems to configure the machine's network.
	Renderer check.Tool `json:"renderer,omitempty"`
	// Managed names what an agent keeps on this node itself: "vlan", "return-path", as --manage takes them.
	Managed []string `json:"managed,omitempty"`
	// Result sums the checks up.
	Result Result `json:"result"`
	// Address is set where one address was asked for.
	Address *Address `json:"address,omitempty"`
	// Findings are the node's checks, then those of the addresses of Services.
	Findings []check.Finding `json:"checks"`
}

// OtherNetwork is the result for another public network of the Node.
type OtherNetwork struct {
	Name   string       `json:"name"` // of the PublicNetwork
	Status check.Status `json:"status"`
}

// InNetwork is the diagnosis of a node in the public network of a name.
type InNetwork struct {
	Name string
	Document
}

// Worst returns the document with the worst result, the first of several, with the others as its OtherNetworks.
func Worst(all []InNetwork) Document {
	weight := func(d InNetwork) int { return outcomes[d.Sum().Result.Status].weight }
	worst := slices.MaxFunc(all, func(a, b InNetwork) int { return cmp.Compare(weight(a), weight(b)) })
	for _, d := range all {
		if d.Name != worst.Name {
			worst.OtherNetworks = append(worst.OtherNetworks, OtherNetwork{Name: d.Name, Status: d.Sum().Result.Status})
		}
	}
	return worst.Document
}

// Result sums the findings up.
type Result struct {
	// Status is the worst outcome: FAIL, UNKNOWN, WARN or OK.
	Status check.Status `json:"status"`
	// FirstCause is the finding to fix first; empty when the check passes.
	FirstCause check.ID `json:"firstCause,omitempty"`
	// Counts are the numbers of findings by their outcome.
	Counts map[check.Status]int `json:"counts"`
}

// Sum returns the document with its Result.
func (d Document) Sum() Document {
	d.Address, d.Findings = d.Address.filled(), append([]check.Finding{}, d.Findings...)
	d.Result = Result{Status: check.OK, Counts: map[check.Status]int{}}
	for _, f := range d.Findings {
		d.Result.Counts[f.Status]++
		if outcomes[f.Status].weight > outcomes[d.Result.Status].weight {
			d.Result.Status = f.Status
			d.Result.FirstCause = f.ID
		}
	}
	return d
}

// outcomes are what each status means for the whole and how it is shown. The worst has the largest weight: a failure
// outweighs what could not be determined. colour contains the parameters of SGR, see text.Style.
var outcomes = map[check.Status]struct {
	weight, exit         int
	glyph, ascii, colour string
}{
	check.OK:      {0, ExitOK, "✔", "+", "32"},
	check.Skip:    {0, ExitOK, "–", "-", "2"},
	check.Warn:    {1, ExitOK, "!", "!", "33"},
	check.Unknown: {2, ExitUndetermined, "?", "?", "36"},
	check.Fail:    {3, ExitFailed, "✖", "x", "1;31"},
}

// ExitCode is the code to exit with. Warnings are no failure unless strict.
func (d Document) ExitCode(strict bool) int {
	status := d.Sum().Result.Status
	if strict && status == check.Warn {
		return ExitFailed
	}
	return outcomes[status].exit
}

// JSON writes the document for programs. It is harmless on a terminal, too, as text is.
func (d Document) JSON(w io.Writer) error {
	encoder := json.NewEncoder(text.NewCleaner(w))
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d.Sum()); err != nil {
		return fmt.Errorf("write the diagnosis: %w", err)
	}
	return nil
}

// YAML writes the same as JSON does, as one document of a YAML stream. It is made from what JSON writes: YAML allows no
// control characters (YAML 1.2, section 5.1), and one in a name must not take the document away.
func (d Document) YAML(w io.Writer) error {
	var written bytes.Buffer
	if err := d.JSON(&written); err != nil {
		return err
	}
	raw, err := yaml.JSONToYAML(written.Bytes())
	if err != nil {
		return fmt.Errorf("write the diagnosis: %w", err)
	}
	if _, err := fmt.Fprintf(w, "---\n%s", raw); err != nil {
		return fmt.Errorf("write the diagnosis: %w", err)
	}
	return nil
}
