package reference

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Selection defines which constants a table lists.
type Selection struct {
	Table string
	// Head of the first column.
	Head string
	// Of are the constants: package and the comment of their declaration, or package and name.
	Of []choice
	// extra says more about a constant than its comment, in a column of its own.
	extra func(Constant) string
	// extraHead is the head of that column.
	extraHead string
}

// choice selects constants of a package by the beginning of the comment of their declaration or by their names.
type choice struct {
	Pkg, Block string
	Names      []string
}

func (c choice) takes(k Constant) bool {
	if k.Package != c.Pkg {
		return false
	}
	if len(c.Names) > 0 {
		return slices.Contains(c.Names, k.Name)
	}
	return !k.Single && strings.HasPrefix(k.Block, c.Block)
}

var eventType = regexp.MustCompile(`^\((Normal|Warning)\)`)

// typeOfEvent is the type of an event, which stands in the comment of its reason.
func typeOfEvent(c Constant) string {
	match := eventType.FindStringSubmatch(c.Comment)
	if match == nil {
		return ""
	}
	return match[1]
}

// eventTables are the tables of events, by the object that they are recorded on.
func eventTables(constants []Constant) []Selection {
	on := map[string]string{
		"events-on-services": "Services", "events-on-nodes": "Node", "events-on-the-namespace": "Namespace",
		"events-on-the-endpoint": "Service kube-system/", "events-on-ipblocks": "IPBlocks",
		"events-on-publicnetworks": "PublicNetworks",
	}
	var tables []Selection
	for name, object := range on {
		t := Selection{Table: name, Head: "reason", extraHead: "type, from", extra: func(c Constant) string {
			from, _, _ := strings.Cut(c.Package, "/")
			return typeOfEvent(c) + ", " + from
		}}
		for _, c := range constants {
			if reported := objectOfEvent(c); reported != "" && strings.HasPrefix(reported, object) &&
				!slices.ContainsFunc(t.Of, func(each choice) bool { return each.takes(c) }) {
				t.Of = append(t.Of, choice{Pkg: c.Package, Block: c.Block})
			}
		}
		tables = append(tables, t)
	}
	return tables
}

var eventObject = regexp.MustCompile(`^Reasons of the events on (?:the |a )?(.*)`)

// objectOfEvent is what the events of a reason are recorded on; empty for a constant that is not the reason of an
// event.
func objectOfEvent(c Constant) string {
	match := eventObject.FindStringSubmatch(c.Block)
	if match == nil {
		return ""
	}
	return match[1]
}

// write makes the table of a selection.
func (s Selection) write(w writer, constants []Constant) (string, error) {
	var rows [][]string
	for _, choice := range s.Of {
		before := len(rows)
		for _, c := range constants {
			if !choice.takes(c) {
				continue
			}
			if c.Comment == "" {
				return "", fmt.Errorf("%s.%s has no comment that explains what %s means to a user", c.Package, c.Name,
					c.Value)
			}
			row := []string{code(c.Value), w.meaning(c)}
			if s.extra != nil {
				row = slices.Insert(row, 1, s.extra(c))
			}
			rows = append(rows, row)
		}
		if len(rows) == before {
			return "", fmt.Errorf("table %s: nothing in %s is selected by %q or %q", s.Table, choice.Pkg, choice.Block,
				choice.Names)
		}
	}
	head := []string{s.Head, "meaning"}
	if s.extra != nil {
		head = slices.Insert(head, 1, s.extraHead)
	}
	return table(head, rows), nil
}

var (
	// kind is the type of an event, in parentheses behind the name of its reason.
	kind = regexp.MustCompile(`^\((Normal|Warning)\): ?`)
	// pointer sends a reader of the code to a type.
	pointer = regexp.MustCompile(`,? see [A-Z]\w*(\.\w+)?`)
	quoted  = regexp.MustCompile(`"([^" ]+)"`)
	// literal is what is always set in code letters.
	literal = regexp.MustCompile("`[^`]+`" +
		`|(?:phoenixnap\.com|kube-vip\.io)/[A-Za-z-]*[A-Za-z]|(?:default|kube-system)/[a-z-]+|/auth/realms/[A-Za-z/-]+|\bCAP_[A-Z_]+|\bNET_(?:ADMIN|RAW)\b|/metrics|/healthz|/readyz|(?:spec|status)\.[A-Za-z]+|--[a-z][a-z-]*[a-z](?:=[a-z0-9-]*[a-z0-9])?|[a-z-]+://<[a-z-]+>|\blb_class_name\b`)
	word = regexp.MustCompile("`[^`]+`" + `|\b(?:[a-z]+\.)?[A-Za-z]+\b`)
)

// writer turns the comments of constants into sentences for users.
type writer struct {
	// values of constants by package and name.
	values map[string]string
	// fields are the names of options.
	fields map[string]bool
}

func newWriter(constants []Constant, fields []string) writer {
	w := writer{values: map[string]string{}, fields: map[string]bool{}}
	for _, c := range constants {
		w.values[c.Package+"."+c.Name] = c.Value
	}
	for _, field := range fields {
		w.fields[field] = field != ""
	}
	return w
}

// meaning is the comment of a constant, reworded for readers who do not know the code.
func (w writer) meaning(c Constant) string {
	text := kind.ReplaceAllString(c.Comment, "")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	text = pointer.ReplaceAllString(text, "")
	text = quoted.ReplaceAllString(text, "`$1`")
	text = w.marked(text)
	text = word.ReplaceAllStringFunc(text, func(name string) string { return w.named(c.Package, name) })
	return strings.TrimSuffix(strings.TrimSpace(text), ".")
}

// marked sets names of Kubernetes and of ours in code letters.
func (w writer) marked(text string) string {
	return literal.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "`") {
			return found
		}
		return code(found)
	})
}

// named puts the value in the place of the name of a constant.
func (w writer) named(pkg, name string) string {
	if strings.HasPrefix(name, "`") || strings.ToLower(name) == name {
		return name
	}
	if w.fields[name] {
		return code(name)
	}
	if value, ok := w.values[pkg+"."+name]; ok {
		return code(value)
	}
	if of, short, ok := strings.Cut(name, "."); ok {
		for known, value := range w.values {
			if path.Base(known) == of+"."+short {
				return code(value)
			}
		}
	}
	return name
}
