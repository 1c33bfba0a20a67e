package check

import (
	"cmp"
	"slices"
	"strings"
)

// ID is the stable name of a check, such as "PN103"; documentation, metrics and users' alerts refer to it.
type ID string

// Status is the outcome of a check.
type Status string

// The outcomes, from good to bad. Skip is neither: the check was not applicable, and Because says why.
const (
	OK      Status = "OK"
	Skip    Status = "SKIP"
	Warn    Status = "WARN"
	Unknown Status = "UNKNOWN"
	Fail    Status = "FAIL"
)

// Severity is how bad a check's worst outcome is.
type Severity string

const (
	// Error makes a node unfit to carry traffic of the public network.
	Error Severity = "error"
	// Warning is worth a look, but traffic may flow.
	Warning Severity = "warning"
)

// Tool is a program that configures a Linux machine's network.
type Tool string

// The tools that fixes are written for.
const (
	Netplan        Tool = "netplan"
	NetworkManager Tool = "networkmanager"
	Ifupdown       Tool = "ifupdown"
	Networkd       Tool = "networkd"
	IPRoute2       Tool = "iproute2"
	// AnyTool marks a fix that is the same whatever configures the network.
	AnyTool Tool = "any"
)

// Fix is one way to fix a failure. The file is written first, whole: no other fix and no guide writes it with other
// content. Then the commands are run.
type Fix struct {
	Tool     Tool     `json:"tool"`
	File     string   `json:"file,omitempty"`
	Content  string   `json:"content,omitempty"`
	Commands []string `json:"commands,omitempty"`
	// Warning says what the commands take away, and is read before them.
	Warning string `json:"warning,omitempty"`
	// Note says what is not a command: a step in phoenixNAP's portal, or that the effect ends with a reboot.
	Note string `json:"note,omitempty"`
}

// Finding is the result of one check.
type Finding struct {
	ID       ID       `json:"id"`
	Title    string   `json:"title"`
	Status   Status   `json:"status"`
	Severity Severity `json:"severity"`
	// Reason is one CamelCase word for the cause, fit for the reason of a condition; empty when the check passes.
	Reason string `json:"reason,omitempty"`
	// Expected and Observed are the evidence.
	Expected string `json:"expected,omitempty"`
	Observed string `json:"observed,omitempty"`
	// Cause is one sentence without counters or times, fit for the message of a condition.
	Cause string `json:"cause,omitempty"`
	// Because names the deeper cause of a skipped check.
	Because string `json:"because,omitempty"`
	Fixes   []Fix  `json:"fixes,omitempty"`
	// Doc is the URL of the page in the documentation.
	Doc       string `json:"doc"`
	DependsOn []ID   `json:"dependsOn,omitempty"`
	// Wire marks evidence that comes from other machines' answers, which may be lost: one bad sample proves nothing.
	// Evidence of the kernel is final at once.
	Wire bool `json:"-"`
}

// Report is the outcome of all checks, in the order of the catalogue.
type Report struct {
	// Server is the ID of the server that the Node names, empty when it is not known.
	Server string `json:"server,omitempty"`
	// Interface is the name of the VLAN interface, empty when there is none.
	Interface string `json:"interface,omitempty"`
	// Uplink is the name of the link below it, empty when none was found.
	Uplink string `json:"uplink,omitempty"`
	// Source is the node's own IPv4 address on that interface: the only one that may stand as the sender of an ARP
	// request; invalid when there is none.
	Source   string    `json:"source,omitempty"`
	Findings []Finding `json:"findings"`
}

// Finding returns the finding of that ID; a zero Finding when there is none.
func (r Report) Finding(id ID) Finding {
	f, _ := first(r.Findings, func(f Finding) bool { return f.ID == id })
	return f
}

// Outcome sums up a report: can the node carry traffic of the public network?
type Outcome struct {
	// Status is OK, Fail or Unknown; Reason is the CamelCase word of the first cause.
	Status Status
	Reason string
	// Message holds the causes; it has no counters or times, so it changes only when the causes do.
	Message string
}

// ReasonReady is the reason of a verdict that is OK.
const ReasonReady = "Ready"

// Outcome sums a report up. Only checks of severity Error count; a failure outweighs what is unknown.
func (r Report) Outcome() Outcome {
	for _, status := range []Status{Fail, Unknown} {
		o := Outcome{Status: status}
		var causes []string
		for _, f := range r.Findings {
			if f.Status == status && f.Severity == Error {
				o.Reason = cmp.Or(o.Reason, f.Reason)
				causes = append(causes, string(f.ID)+": "+f.Cause)
			}
		}
		o.Message = strings.Join(causes, "; ")
		if r.Server != "" {
			o.Message += " (server " + r.Server + ")"
		}
		if len(causes) > 0 {
			return o
		}
	}
	ready := "interface " + r.Interface
	if r.Server != "" {
		ready += " of server " + r.Server
	}
	return Outcome{Status: OK, Reason: ReasonReady, Message: ready + " is ready for the public network"}
}

// FirstCause is the finding to fix first: the deepest failure, else the deepest unknown, else the deepest warning.
func (r Report) FirstCause() (cause Finding, found bool) {
	for _, status := range []Status{Fail, Unknown, Warn} {
		if f, found := first(r.Findings, func(f Finding) bool { return f.Status == status }); found {
			return f, true
		}
	}
	return Finding{}, false
}

// With returns the whole report of a node of which only the difference to this report is known: other findings are as
// they are here, except those that cannot be evaluated because a check that they depend on did not pass.
func (r Report) With(difference Report) Report {
	whole := difference
	whole.Findings = make([]Finding, 0, len(r.Findings))
	deeper := map[ID]ID{}
	for _, f := range r.Findings {
		if own := difference.Finding(f.ID); own.ID != "" {
			f = own
		} else if i := slices.IndexFunc(f.DependsOn, func(id ID) bool { return deeper[id] != "" }); i >= 0 {
			deeper[f.ID] = deeper[f.DependsOn[i]]
			f.Status = Skip
			f.Because = becauseOf + string(deeper[f.ID])
			f.Observed = ""
		}
		if f.Status == Fail || f.Status == Unknown {
			deeper[f.ID] = f.ID
		}
		whole.Findings = append(whole.Findings, f)
	}
	return whole
}
