package reference

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
)

// options is the table of the controller's options.
func options() string {
	var rows [][]string
	for _, o := range config.Options() {
		flag := ""
		if o.Flag != "" {
			flag = "--" + o.Flag
		}
		rows = append(rows, []string{codes(flag, o.Env), code(o.Field), marked(strings.TrimSuffix(o.Usage, ".")),
			marked(o.Default)})
	}
	return table([]string{"flag, environment", "secret field", "meaning", "default"}, rows)
}

// Flag is one flag as a program's help prints it.
type Flag struct {
	// Name without its dashes, and the letter that stands for it; empty when none does.
	Name, Letter string
	// Value is the type of its value; empty for a switch.
	Value string
	// Usage describes what it is for, Default what it is when not given.
	Usage, Default string
}

var (
	flagLine    = regexp.MustCompile(`^\s+(?:-(\w), )?--([a-z][a-z0-9-]*)(?:\[=\S+\])?(?: (\S+))?(?:\s{2,}(.*))?$`)
	flagDefault = regexp.MustCompile(`^(.*?)(?: \(default (.*)\))?$`)
)

// Flags reads the flags out of a program's help, as github.com/spf13/pflag prints it.
func Flags(help string) []Flag {
	var flags []Flag
	for line := range strings.Lines(help) {
		match := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		usage := flagDefault.FindStringSubmatch(match[4])
		flags = append(flags, Flag{Letter: match[1], Name: match[2], Value: match[3], Usage: usage[1],
			Default: strings.Trim(usage[2], `"`)})
	}
	return flags
}

// agentVariable is the environment variable that the agent reads for a flag.
func agentVariable(flag string) string {
	if flag == "kubeconfig" {
		return "KUBECONFIG"
	}
	return "PNAP_AGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// agentFlags is the table of the flags of an agent's command. Those of klog are the same for all programs of
// Kubernetes.
func agentFlags(help string, environment bool) (string, error) {
	var rows [][]string
	for _, f := range Flags(help) {
		if f.Name == "help" || f.Name == "v" || f.Name == "vmodule" {
			continue
		}
		names := []string{"--" + f.Name}
		if f.Letter != "" {
			names = append(names, "-"+f.Letter)
		}
		if environment {
			names = append(names, agentVariable(f.Name))
		}
		rows = append(rows, []string{codes(names...), marked(f.Usage), code(f.Default)})
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("no flags found in the help %q", help)
	}
	head := "flag"
	if environment {
		head = "flag, environment"
	}
	return table([]string{head, "meaning", "default"}, rows), nil
}

func marked(text string) string { return writer{}.marked(text) }
