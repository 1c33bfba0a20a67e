package docs

import (
	"fmt"
	"strings"
)

// substituted stands in a word in the place of what a $(…) would print; its commands are among those that shellCommands
// returns.
const substituted = "substituted"

// shellCommands returns the simple commands of a script, each with its words, without comments, redirections and
// assignments before a command. It knows what pages use: quotes, continued lines, $(…), pipes, ; && ||. Anything else
// is an error.
func shellCommands(script string) ([][]string, error) {
	r := &reader{rest: script}
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("read %q: %w", script, err)
	}
	return r.commands, nil
}

type reader struct {
	rest     string
	commands [][]string
	words    []string
	word     strings.Builder
	// begun reports that there is a word, which may be empty.
	begun bool
}

func (r *reader) read() error {
	for r.rest != "" {
		if err := r.step(); err != nil {
			return err
		}
	}
	r.endCommand()
	return nil
}

// step takes what stands at the beginning of the rest.
func (r *reader) step() error {
	switch c := r.rest[0]; {
	case strings.HasPrefix(r.rest, "\\\n"):
		r.rest = r.rest[2:]
		r.endWord()
	case c == '\\' && len(r.rest) > 1:
		r.add(r.rest[1:2])
		r.rest = r.rest[2:]
	case c == ' ' || c == '\t':
		r.rest = r.rest[1:]
		r.endWord()
	case c == '#' && !r.begun:
		_, r.rest, _ = strings.Cut(r.rest, "\n")
		r.endCommand()
	case strings.HasPrefix(r.rest, "<<"):
		return fmt.Errorf("a here-document: put it into a block of its own")
	case strings.ContainsRune("\n;|&", rune(c)):
		r.rest = r.rest[1:]
		r.endCommand()
	case c == '>' || c == '<':
		r.redirect()
	case c == '\'':
		return r.quoted()
	case c == '"':
		return r.interpreted()
	case strings.HasPrefix(r.rest, "$("):
		return r.substitute()
	default:
		r.add(r.rest[:1])
		r.rest = r.rest[1:]
	}
	return nil
}

func (r *reader) add(text string) {
	r.begun = true
	r.word.WriteString(text)
}

// redirect leaves out the file behind an arrow; "2" of "2>" is left out, too.
func (r *reader) redirect() {
	if r.word.String() == "2" || r.word.String() == "1" {
		r.word.Reset()
		r.begun = false
	}
	r.endWord()
	r.rest = strings.TrimLeft(r.rest, "<>& ")
	if end := strings.IndexAny(r.rest, " \n;|&"); end >= 0 {
		r.rest = r.rest[end:]
	} else {
		r.rest = ""
	}
}

func (r *reader) quoted() error {
	text, rest, closed := strings.Cut(r.rest[1:], "'")
	if !closed {
		return fmt.Errorf("a quote that does not end")
	}
	r.add(text)
	r.rest = rest
	return nil
}

// interpreted reads what stands between double quotes.
func (r *reader) interpreted() error {
	r.begun = true
	r.rest = r.rest[1:]
	for r.rest != "" {
		switch {
		case r.rest[0] == '"':
			r.rest = r.rest[1:]
			return nil
		case r.rest[0] == '\\' && len(r.rest) > 1:
			r.add(r.rest[1:2])
			r.rest = r.rest[2:]
		case strings.HasPrefix(r.rest, "$("):
			if err := r.substitute(); err != nil {
				return err
			}
		default:
			r.add(r.rest[:1])
			r.rest = r.rest[1:]
		}
	}
	return fmt.Errorf("a double quote that does not end")
}

// substitute reads the commands of $(…), which come before the one that they stand in.
func (r *reader) substitute() error {
	depth := 0
	for i, c := range r.rest {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 && c == ')' {
			inner, err := shellCommands(r.rest[2:i])
			r.commands = append(r.commands, inner...)
			r.add(substituted)
			r.rest = r.rest[i+1:]
			return err
		}
	}
	return fmt.Errorf("a $( that does not end")
}

func (r *reader) endWord() {
	if r.begun {
		r.words = append(r.words, r.word.String())
	}
	r.word.Reset()
	r.begun = false
}

func (r *reader) endCommand() {
	r.endWord()
	for len(r.words) > 0 && isAssignment(r.words[0]) {
		r.words = r.words[1:]
	}
	if len(r.words) > 0 {
		r.commands = append(r.commands, r.words)
	}
	r.words = nil
}

// isAssignment recognises NAME=value.
func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == ""
}
