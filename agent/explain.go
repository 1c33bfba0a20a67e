//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// newExplainCommand makes the command that explains a finding without the documentation.
func newExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain <finding>...",
		Short:   "Explains what a finding such as PN301 means, what usually causes it and how to fix it",
		Example: "  phoenixnap-agent diagnose explain PN301",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("name a finding, such as %s", check.GatewayAnswers)}
			}
			style := diagnose.StyleFor(c.OutOrStdout(), os.LookupEnv)
			for _, arg := range args {
				entry, known := diagnose.EntryOf(check.ID(strings.ToUpper(arg)))
				if !known {
					return usageError{fmt.Errorf("%q is no finding: they are PN000 to PN609, see the output of "+
						"diagnose", arg)}
				}
				if err := entry.Text(c.OutOrStdout(), style); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
