package check

import "strings"

// Verdict sums up a report: can the node carry traffic of the public network?
type Verdict struct {
	// Status is OK, Fail or Unknown.
	Status Status
	// Reason is the CamelCase word of the first cause.
	Reason string
	// Message holds the causes; it has no counters or times, so it changes only when the causes do.
	Message string
}

// ReasonReady is the reason of a verdict that is OK.
const ReasonReady = "Ready"

// Verdict sums a report up. Only checks of severity Error count; a failure outweighs what is unknown.
func (r Report) Verdict() Verdict {
	for _, status := range []Status{Fail, Unknown} {
		if v, found := r.worst(status); found {
			return v
		}
	}
	return Verdict{Status: OK, Reason: ReasonReady,
		Message: "interface " + r.Interface + r.ofServer() + " is ready for the public network"}
}

func (r Report) worst(status Status) (Verdict, bool) {
	v := Verdict{Status: status}
	var causes []string
	for _, f := range r.Findings {
		if f.Status != status || f.Severity != Error {
			continue
		}
		if v.Reason == "" {
			v.Reason = f.Reason
		}
		causes = append(causes, string(f.ID)+": "+f.Cause)
	}
	v.Message = strings.Join(causes, "; ")
	if r.Server != "" && v.Message != "" {
		v.Message += " (server " + r.Server + ")"
	}
	return v, len(causes) > 0
}

func (r Report) ofServer() string {
	if r.Server == "" {
		return ""
	}
	return " of server " + r.Server
}
