package diagnose

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// npdLength is how much of a plugin's output node-problem-detector keeps (its option max_output_length).
const npdLength = 80

// Exit codes of a custom plugin of node-problem-detector (docs/custom_plugin_monitor.md of that project).
const (
	NPDOK      = 0
	NPDProblem = 1
	NPDUnknown = 2
)

// NPD writes the first cause in one line, as node-problem-detector wants it from a plugin, and returns the exit code.
func (d Document) NPD(w io.Writer) (int, error) {
	d = d.Sum()
	line := d.conclusion()
	code := NPDOK
	switch d.Result.Status {
	case check.Fail:
		code = NPDProblem
	case check.Unknown:
		code = NPDUnknown
	case check.OK, check.Skip, check.Warn:
	}
	if first := d.first(); first.ID != "" {
		line = string(first.ID) + ": " + first.Cause
	}
	if _, err := fmt.Fprintln(w, shortened(text.Clean(line), npdLength)); err != nil {
		return NPDUnknown, fmt.Errorf("write the diagnosis: %w", err)
	}
	return code, nil
}

// shortened cuts text to at most length bytes, between characters.
func shortened(text string, length int) string {
	if len(text) <= length {
		return text
	}
	const ellipsis = "..."
	cut := length - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}
