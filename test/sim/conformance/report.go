package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// Switches are the findings as switches of the simulator; what was not found out keeps its default. The error names a
// value that the simulator does not have: then the service does something unexpected.
func Switches(findings []Finding) (pnapsim.Switches, error) {
	values := map[string]any{}
	for _, f := range findings {
		if f.Value == "" {
			continue
		}
		values[f.Switch] = f.Value
		if number, err := strconv.Atoi(f.Value); err == nil && f.Switch != "busy" && f.Switch != "unknownProperty" {
			values[f.Switch] = number
		}
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return pnapsim.Switches{}, err
	}
	var switches pnapsim.Switches
	if err := json.Unmarshal(raw, &switches); err != nil {
		return switches, err
	}
	return switches, switches.Validate()
}

// Write writes the findings, whether they confirm the simulator's defaults, and the switches to start it with.
func Write(w io.Writer, findings []Finding) error {
	answered := 0
	for _, f := range findings {
		verdict := "not known  "
		switch f.Value {
		case "":
		case pnapsim.SwitchDefault(f.Switch):
			verdict, answered = "confirmed  ", answered+1
		default:
			verdict, answered = "DIFFERENT  ", answered+1
		}
		if _, err := fmt.Fprintf(w, "%s%-18s %-15s %s\n", verdict, f.Switch, f.Value, f.Why); err != nil {
			return err
		}
	}
	switches, err := Switches(findings)
	if err != nil {
		_, err = fmt.Fprintf(w, "the simulator cannot do that yet: %v\n", err)
		return err
	}
	raw, err := json.Marshal(switches)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "switches %s\nfigure conformance_switches_answered %d switches\n", raw, answered)
	return err
}
