package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

// programVersion is the version of the plugin, for programs.
type programVersion struct {
	Version   string `json:"version"`
	GitCommit string `json:"gitCommit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func (p *plugin) newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Shows the version of this plugin",
		Long:    "Shows the version of this plugin. The command asks no API server.",
		Example: "  kubectl pnap version -o json",
		Args:    noArguments(allCommands),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.checkOutput(); err != nil {
				return err
			}
			info := version.Get()
			if p.output != outputText {
				return p.encode(c.OutOrStdout(), programVersion{Version: info.GitVersion,
					GitCommit: commitOf(info.GitCommit), GoVersion: info.GoVersion, Platform: info.Platform})
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "kubectl pnap", info.GitVersion, info.Platform, info.GoVersion)
			return err
		},
	}
}

// commitOf returns the commit that a program was built from; empty when it was not stamped with it.
func commitOf(stamped string) string {
	if len(stamped) > 0 && stamped[0] == '$' {
		return ""
	}
	return stamped
}
