package diagnose

import (
	"fmt"
	"io"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// Entry is the declaration of a finding, told to a person.
type Entry struct{ check.Check }

// Entries are all findings that a diagnosis may hold, in the order in which they stand there.
func Entries() []Entry {
	var entries []Entry
	for _, c := range check.Catalogue() {
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
	p.prose("", 6, style.heading(string(e.ID))+" "+e.Title)
	p.field(2, "severity", e.severity())
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

func (e Entry) severity() string {
	if e.Severity == check.Error {
		return "error: while it fails, the node is not ready for the public network"
	}
	return "warning: worth a look, but the node stays ready"
}
