package licenses

import (
	"fmt"
	"io"
	"strings"
)

// preface is the beginning of the file that is given to users with the programs.
const preface = `The programs of the phoenixNAP cloud provider for Kubernetes contain the parts below. The source code of each part, in
exactly the version that is used, can be had from the address after "Source". For parts under the Mozilla Public License
2.0 this is the Source Code Form that section 3.2 of that license is about; they are not modified.
`

// Write writes the parts with the texts of their licenses. A text is there once; later parts with the same one name the
// first.
func Write(to io.Writer, parts []Part) error {
	var all strings.Builder
	all.WriteString(preface)
	first := map[string]string{}
	for _, p := range parts {
		fmt.Fprintf(&all, "\n%s\n%s %s\nLicense: %s\nSource: %s\n", strings.Repeat("=", 80), p.Path, p.Version,
			p.License, p.Source)
		for _, text := range p.Texts {
			content := strings.TrimSpace(text.Content)
			if before, known := first[content]; known {
				fmt.Fprintf(&all, "\n%s: the text is that of %s\n", text.Name, before)
				continue
			}
			first[content] = p.Path + "/" + text.Name
			fmt.Fprintf(&all, "\n--- %s ---\n\n%s\n", first[content], content)
		}
	}
	_, err := io.WriteString(to, all.String())
	return err
}
