package pnapsim

import (
	"fmt"
	"regexp"

	"github.com/getkin/kin-openapi/openapi3"
)

// pattern is a regular expression with at most one assertion beside it, since Go's RE2 knows no
// lookaround: text matches when it matches want and, where present, also and does not match not.
type pattern struct {
	want *regexp.Regexp
	also *regexp.Regexp
	not  *regexp.Regexp
}

// MatchString implements openapi3.RegexMatcher.
func (p pattern) MatchString(text string) bool {
	return p.want.MatchString(text) &&
		(p.also == nil || p.also.MatchString(text)) &&
		(p.not == nil || !p.not.MatchString(text))
}

// compilePattern compiles a "pattern" of the OpenAPI documents. Those with lookaround are known one by
// one and said in RE2; a new one is an error, never a match.
func compilePattern(expr string) (openapi3.RegexMatcher, error) {
	switch expr {
	case `^(?=.*[a-zA-Z])([a-zA-Z0-9().-])+$`: // hostnames
		return compileParts(`^[a-zA-Z0-9().-]+$`, `[a-zA-Z]`, "")
	case `^(?=.*[a-zA-Z])([a-zA-Z0-9(). -])+$`: // names of networks
		return compileParts(`^[a-zA-Z0-9(). -]+$`, `[a-zA-Z]`, "")
	case `^(?!\s*$).+`:
		return compileParts(`^.+`, "", `^\s*$`)
	case `^(?s)(?!\s*$).+`:
		return compileParts(`(?s)^.+`, "", `^\s*$`)
	case `^(?!-)[\w\-]{1,63}(?<!-)(\.(?!-)[\w\-]{1,63}(?<!-))*$`: // domain names
		return compileParts(`^\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*$`, "", "")
	default:
		return compileParts(expr, "", "")
	}
}

func compileParts(want, also, not string) (openapi3.RegexMatcher, error) {
	var p pattern
	for _, part := range []struct {
		into **regexp.Regexp
		expr string
	}{{&p.want, want}, {&p.also, also}, {&p.not, not}} {
		if part.expr == "" {
			continue
		}
		compiled, err := regexp.Compile(part.expr)
		if err != nil {
			return nil, fmt.Errorf("pattern %q of an OpenAPI document: write it for RE2 in compilePattern: %w",
				part.expr, err)
		}
		*part.into = compiled
	}
	return p, nil
}
