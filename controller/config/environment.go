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
			fmt.Sprintf("environment variable %s is not an option and has no effect: did you "+
				"mean %s? Otherwise unset it", name, nearest(name, known)))
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

// nearest returns the known name that differs in the fewest letters.
func nearest(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is how many letters must be inserted, removed or replaced to make one text from the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
