package figures

import (
	"strings"
	"unicode/utf8"
)

const (
	maxColumns = 120
	tabColumns = 4
)

// longLines counts the lines of the files, and those that are too long.
func longLines(files []file) (long, all int) {
	for _, f := range files {
		for line := range strings.Lines(string(f.source)) {
			all++
			if columns(strings.TrimSuffix(line, "\n")) > maxColumns {
				long++
			}
		}
	}
	return long, all
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}
