package diagnose

import (
	"fmt"
	"io"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
)

// Entry is the declaration of a finding, printed for a person.
type Entry struct{ check.Check }

// Entries are all findings that a diagnosis may hold, in their order.
func Entries() []Entry {
	var entries []Entry
	for _, c := range slices.Concat(check.Catalogue(), vip.Catalogue()) {
		entries = append(entries, Entry{c})
	}
	return entries
}

// EntryOf returns the entry with that ID.
func EntryOf(id check.ID) (e Entry, known bool) {
	for _, e := range Entries() {
		if e.ID == id {
			return e, true
		}
	}
	return Entry{}, false
}

// Text writes the entry for a person.
func (e Entry) Text(w io.Writer, style Style) error {
	p := &page{style: style}
	p.prose(style.heading(string(e.ID))+" ", len(e.ID)+1, e.Title)
	p.field(2, "severity", e.Impact())
	p.field(2, "meaning", e.Meaning)
	for i, cause := range e.Causes {
		p.field(2, map[bool]string{true: "causes", false: ""}[i == 0], "- "+cause)
	}
	p.field(2, "remedy", e.Remedy)
	p.line("")
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

// Impact is what a failure means for the node.
func (e Entry) Impact() string {
	switch {
	case e.Severity != check.Error:
		return "warning: worth a look; no condition of the Node changes"
	case Group(e.ID) == announced:
		return "error: while it fails, the Node's condition phoenixnap.com/AnnouncementHealthy is False"
	default:
		return "error: while it fails, the Node's condition phoenixnap.com/VLANReady is False"
	}
}
