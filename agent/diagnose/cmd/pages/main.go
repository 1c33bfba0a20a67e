// Command pages writes the reference of findings. It is run at the root of the repository, by make docs.
package main

import (
	"fmt"
	"os"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose/pages"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func write() error {
	examples, err := pages.Examples("agent/verify/check/testdata")
	if err != nil {
		return err
	}
	pages.Announcements(examples)
	return pages.Write("docs/reference", pages.Render(diagnose.Entries(), examples))
}
