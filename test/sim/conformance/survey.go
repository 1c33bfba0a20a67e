// Package conformance asks a real phoenixNAP account about behavior that is not documented, and reports which switches
// of the simulator that confirms.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Finding is what is known of one switch of the simulator.
type Finding struct {
	// Switch is its name (see pnapsim.Switches).
	Switch string
	// Value is what the service does; empty when that was not found out.
	Value string
	// Why is what was seen, or what is missing to see it.
	Why string
}

// Options define how far a survey may go.
type Options struct {
	// Location in which to buy.
	Location string
	// Server, when set, is joined to the network of the survey for some minutes.
	Server string
	// FullNetwork, when set, is a public network that holds ten IPv4 blocks, to which an eleventh is offered.
	FullNetwork string
	// Confirm is shown what is about to be bought; false ends the survey before that.
	Confirm func(offer string) bool
	// Say receives a line for each step that changes something; nil for none.
	Say func(format string, args ...any)
	// Wait lets time pass between two looks; nil waits.
	Wait func(ctx context.Context, d time.Duration) error
}

const (
	// look is the time between two looks at something that is changing, and patience how long it may take.
	look     = 3 * time.Second
	patience = 15 * time.Minute
)

// Survey asks one account. It is for one goroutine.
type Survey struct {
	account *Account
	options Options
	found   map[string]Finding
	// made is what has to go again.
	made made
}

// New returns a Survey. It sends no request.
func New(account *Account, options Options) *Survey {
	if options.Say == nil {
		options.Say = func(string, ...any) {}
	}
	if options.Wait == nil {
		options.Wait = command.Pause
	}
	return &Survey{account: account, options: options, found: map[string]Finding{}}
}

// note keeps the value of a switch.
func (s *Survey) note(name string, value any, format string, args ...any) {
	s.found[name] = Finding{Switch: name, Value: fmt.Sprint(value), Why: fmt.Sprintf(format, args...)}
}

// refusal notes the code with which something was refused that must not succeed.
func (s *Survey) refusal(name string, got answer, what string) error {
	if got.accepted() {
		s.found[name] = Finding{Switch: name, Why: what + " was not refused: " + got.String()}
	} else if got.err == nil {
		s.note(name, got.code, "%s: %s", what, got)
	}
	return got.err
}

// Findings are what is known of every switch, in the order of the simulator.
func (s *Survey) Findings() []Finding {
	var all []Finding
	for _, name := range pnapsim.SwitchNames() {
		finding, known := s.found[name]
		if !known {
			finding = Finding{Switch: name, Why: missing(name)}
		}
		all = append(all, finding)
	}
	return all
}

// missing describes what is needed to find out about a switch.
func missing(name string) string {
	switch name {
	case "deleteErrorState":
		return "no one can bring a block into an error state; look at one when it happens"
	case "overLimit":
		return "needs --buy and --full-network, a public network that holds ten IPv4 blocks"
	case "quotaCode":
		return "needs an account that has reached its quota of IP blocks"
	case "memberAddress", "first31IsGateway":
		return "needs --buy and --server, a server that may be joined to a network for some minutes"
	default:
		return "needs --buy"
	}
}

// until polls until done reports true.
func (s *Survey) until(ctx context.Context, what string, done func() (bool, error)) error {
	for waited := time.Duration(0); ; waited += look {
		ended, err := done()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ended {
			return nil
		}
		if waited >= patience {
			return fmt.Errorf("%s: not within %s", what, patience)
		}
		if err := s.options.Wait(ctx, look); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// errRefused reports that the service refused what the survey needs to go on.
var errRefused = errors.New("refused")

// refused is the error of an answer that was not accepted.
func refused(what string, got answer) error {
	if got.err != nil {
		return got.err
	}
	return fmt.Errorf("%s is %w: %s", what, errRefused, got)
}

// Switches are the findings as switches of the simulator; what was not found out keeps its default. The error names a
// value that the simulator does not have: then the service does something unexpected.
func Switches(findings []Finding) (pnapsim.Switches, error) {
	var switches pnapsim.Switches
	for _, f := range findings {
		if f.Value == "" {
			continue
		}
		if err := switches.Set(f.Switch, f.Value); err != nil {
			return switches, err
		}
	}
	return switches, nil
}

// Write writes the findings, whether they confirm the simulator's defaults, and the switches to start it with.
func Write(w io.Writer, findings []Finding) error {
	answered := 0
	for _, f := range findings {
		verdict := "not known  "
		switch f.Value {
		case "":
		case pnapsim.SwitchValues(f.Switch)[0]:
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
