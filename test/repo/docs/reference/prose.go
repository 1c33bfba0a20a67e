package reference

import (
	"path"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/repo/docs/source"
)

var (
	// kind is the type of an event, in parentheses behind the name of its reason.
	kind = regexp.MustCompile(`^\((Normal|Warning)\): ?`)
	// pointer sends a reader of the code to a type.
	pointer = regexp.MustCompile(`,? see [A-Z]\w*(\.\w+)?`)
	quoted  = regexp.MustCompile(`"([^" ]+)"`)
	// literal is what is always set in code letters.
	literal = regexp.MustCompile("`[^`]+`" +
		`|(?:phoenixnap\.com|kube-vip\.io)/[A-Za-z-]*[A-Za-z]|(?:default|kube-system)/[a-z-]+|/auth/realms/[A-Za-z/-]+|\bCAP_[A-Z_]+|\bNET_(?:ADMIN|RAW)\b|/metrics|/healthz|/readyz|(?:spec|status)\.[A-Za-z]+|--[a-z][a-z-]*[a-z](?:=[a-z-]+)?|[a-z-]+://<[a-z-]+>|\blb_class_name\b`)
	word = regexp.MustCompile("`[^`]+`" + `|\b(?:[a-z]+\.)?[A-Za-z]+\b`)
)

// writer turns the comments of constants into sentences for users.
type writer struct {
	// values of constants by package and name.
	values map[string]string
	// fields are the names of options.
	fields map[string]bool
}

func newWriter(constants []source.Constant, fields []string) writer {
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
func (w writer) meaning(c source.Constant) string {
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
