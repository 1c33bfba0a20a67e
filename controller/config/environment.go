package config

import (
	"fmt"
	"slices"
	"strings"
)

// UnknownVariables returns a sentence for each environment variable, given as NAME=value, whose name begins like those
// of the options and is none of them, such as a misspelt one. It never contains a value.
func UnknownVariables(environ []string) []string {
	names := make([]string, len(environ))
	for i, variable := range environ {
		names[i], _, _ = strings.Cut(variable, "=")
	}
	var known []string
	for _, o := range Options() {
		if o.Env != "" {
			known = append(known, o.Env)
		}
	}
	var sentences []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		foreign := !strings.HasPrefix(name, "PNAP_") || strings.HasPrefix(name, "PNAP_AGENT_")
		if foreign || slices.Contains(known, name) || ofService(name, names) {
			continue
		}
		sentences = append(sentences,
			fmt.Sprintf("environment variable %s is not an option and has no effect: unset it, or correct the name "+
				"to one of %s", name, strings.Join(known, ", ")))
	}
	return sentences
}

// ofService reports whether the kubelet set the variable for a Service of that name, with another one for its address.
func ofService(name string, all []string) bool {
	for _, mark := range []string{"_SERVICE_", "_PORT"} {
		if i := strings.LastIndex(name, mark); i > 0 && slices.Contains(all, name[:i]+"_SERVICE_HOST") {
			return true
		}
		if i := strings.Index(name, mark); i > 0 && slices.Contains(all, name[:i]+"_SERVICE_HOST") {
			return true
		}
	}
	return false
}
