package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// trimPasted removes what copying adds at the ends of a value: spaces, line ends, and characters that are not shown.
func trimPasted(value string) string {
	return strings.TrimFunc(value, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// quotationMarks are pairs that programs and word processors put around a value.
var quotationMarks = []string{`""`, "''", "``", "“”", "„“", "‘’", "«»"}

// flaw returns what is wrong with a value, or nil. It does not contain the value, which may be a secret.
func flaw(value string, possible func(rune) bool) error {
	first, _ := utf8.DecodeRuneInString(value)
	last, _ := utf8.DecodeLastRuneInString(value)
	if slices.Contains(quotationMarks, string([]rune{first, last})) {
		return errors.New("is enclosed in quotation marks: remove them")
	}
	for _, r := range value {
		if !possible(r) {
			return fmt.Errorf("contains the character %U, which it cannot have: copy it again", r)
		}
	}
	return nil
}

// inOption reports whether the value of an option may contain a character.
func inOption(r rune) bool { return r >= ' ' && r <= '~' }

// inCredential reports whether a client ID or secret may contain a character: RFC 6749 allows a space too, which is a
// mistake in what was copied.
func inCredential(r rune) bool { return inOption(r) && r != ' ' }
