package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
)

// completer is the name under which kubectl calls the plugin for completions (kubectl completion --help).
const completer = "kubectl_complete-pnap"

// completionTimeout bounds how long a shell waits for names.
const completionTimeout = 10 * time.Second

// argumentsOf returns the arguments of the command, from those of the process with its name. Under the name that
// kubectl calls for completions, they are the words to complete.
func argumentsOf(process []string) []string {
	if len(process) == 0 {
		return nil
	}
	if name := strings.TrimSuffix(filepath.Base(process[0]), ".exe"); name == completer {
		return append([]string{cobra.ShellCompRequestCmd}, process[1:]...)
	}
	return process[1:]
}

// fixTools are the values of --fix.
var fixTools = []string{"netplan", "networkmanager", "ifupdown", "networkd", "iproute2"}

// complete returns a completion of the only argument of a command, see completeValue.
func (p *plugin) complete(propose func(overview.Overview) []string) cobra.CompletionFunc {
	value := p.completeValue(propose)
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return value(c, args, begun)
	}
}

// completeValue returns a completion with what an overview of the cluster contains. Names are completed with the
// permissions of the user; without an answer there are none.
func (p *plugin) completeValue(propose func(overview.Overview) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		o, err := p.overview(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(propose(o), begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// nodeNames proposes the Nodes.
func nodeNames(o overview.Overview) []string {
	var names []string
	for _, n := range o.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// addresses proposes the Services that have an address, and their addresses.
func addresses(o overview.Overview) []string {
	var names []string
	for _, s := range o.Services {
		if _, err := netip.ParseAddr(s.Address); err == nil {
			names = append(names, s.Namespace+"/"+s.Name, s.Address)
		}
	}
	return names
}

// fixed completes a flag with one of the values.
func fixed(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return matching(values, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// matching returns the values that begin with what the user has typed.
func matching(values []string, begun string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(s string) bool { return !strings.HasPrefix(s, begun) })
}

// completeFlag registers the completion of a flag that the command has.
func completeFlag(c *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag does not exist, or has a completion already
	}
}
