// Package reference writes the tables of the reference from what the code declares: string constants with their
// comments, options, flags and findings; and the table of the values of the chart.
package reference

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
)

// Tables writes every table of the pages by its name. root is the project's directory, help is what the commands of the
// agent print with --help.
func Tables(root string, constants []Constant, help map[string]string) (map[string]string, error) {
	var fields []string
	for _, o := range config.Options() {
		fields = append(fields, o.Field)
	}
	w := newWriter(constants, fields)
	tables, err := fixes(root)
	if err != nil {
		return nil, err
	}
	tables["controller-options"] = options()
	tables["reasons-of-findings"] = findings()
	if tables["chart-values"], err = chartValues(root); err != nil {
		return nil, err
	}
	var errs []error
	selections, err := Selections(constants)
	if err != nil {
		return nil, err
	}
	for _, s := range selections {
		written, err := s.write(w, constants)
		tables[s.Table], errs = written, append(errs, err)
	}
	for _, command := range []string{"run", "diagnose"} {
		written, err := agentFlags(help[command], command == "run")
		tables["agent-"+command+"-flags"], errs = written, append(errs, err)
	}
	return tables, errors.Join(errs...)
}

//go:embed tables.yaml
var selected []byte

// Selections are the tables that list constants.
func Selections(constants []Constant) ([]Selection, error) {
	var selections []Selection
	err := yaml.UnmarshalStrict(selected, &selections)
	return append(selections, eventTables(constants)...), err
}

// Lists reports whether one of the tables lists the constant.
func Lists(tables []Selection, c Constant) bool {
	return slices.ContainsFunc(tables, func(s Selection) bool {
		return slices.ContainsFunc(s.Of, func(each choice) bool { return each.takes(c) })
	})
}

// findings leads from the reason of a condition to the finding that has it.
func findings() string {
	var rows [][]string
	for _, e := range diagnose.Entries() {
		condition := "VLANReady"
		if diagnose.Group(e.ID) == "Announcement" {
			condition = "AnnouncementHealthy"
		}
		for _, reason := range e.Reasons {
			rows = append(rows, []string{code(reason), link(e.ID, "findings/"), code(condition), string(e.Severity),
				e.Title})
		}
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return table([]string{"reason", "finding", "condition", "severity", "what is not so"}, rows)
}

// region is what a page leaves to this package: the lines between two comments.
var region = regexp.MustCompile(
	`(?s)(<!-- begin ([a-z0-9-]+): written by make docs -->\n).*?(<!-- end ([a-z0-9-]+) -->\n)`)

// Regions names the regions of a page.
func Regions(page string) []string {
	var names []string
	for _, match := range region.FindAllStringSubmatch(page, -1) {
		names = append(names, match[2])
	}
	return names
}

// Fill returns the page with a table in each of its regions.
func Fill(page string, tables map[string]string) (string, error) {
	var unknown []string
	filled := region.ReplaceAllStringFunc(page, func(whole string) string {
		match := region.FindStringSubmatch(whole)
		table, ok := tables[match[2]]
		if !ok || match[2] != match[4] {
			unknown = append(unknown, match[2])
			return whole
		}
		return match[1] + table + match[3]
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("there are no tables called %s, or their regions do not end with the same name",
			strings.Join(unknown, ", "))
	}
	if strings.Count(page, "<!-- begin ") != len(Regions(page)) {
		return "", fmt.Errorf("a region does not end; those that do: %s", strings.Join(Regions(page), ", "))
	}
	return filled, nil
}

// table writes a table. Empty cells stay empty.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("|")
			if cell != "" {
				b.WriteString(" " + strings.ReplaceAll(cell, "|", "\\|"))
			}
			b.WriteString(" ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// code marks text as code; nothing stays nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// codes marks each text that is not empty.
func codes(texts ...string) string {
	var marked []string
	for _, text := range slices.Compact(texts) {
		if text != "" {
			marked = append(marked, code(text))
		}
	}
	return strings.Join(marked, ", ")
}

// Pages returns the pages of the project that hold tables, as they should be, by their paths below docs: those there,
// and the page of the chart.
func Pages(root string, tables map[string]string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
	}
	pages := map[string]string{}
	for _, path := range append(paths, filepath.Join(root, filepath.FromSlash(chart), "README.md")) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		if len(Regions(string(raw))) == 0 {
			continue
		}
		name, err := filepath.Rel(filepath.Join(root, "docs"), path)
		if err != nil {
			return nil, fmt.Errorf("name a page: %w", err)
		}
		if pages[filepath.ToSlash(name)], err = Fill(string(raw), tables); err != nil {
			return nil, fmt.Errorf("fill %s: %w", path, err)
		}
	}
	return pages, nil
}

// Write updates the pages of the directory docs, and deletes pages of findings that no longer exist.
func Write(docs string, pages map[string]string) error {
	stale, err := Differences(docs, pages)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(docs, findingPages), 0o755); err != nil {
		return fmt.Errorf("write the pages: %w", err)
	}
	for _, name := range stale {
		path := filepath.Join(docs, filepath.FromSlash(name))
		content, wanted := pages[name]
		if !wanted {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the pages: %w", err)
		}
	}
	return nil
}

// Differences names the pages of the directory docs that are not up to date. Pages of findings must be wanted.
func Differences(docs string, pages map[string]string) ([]string, error) {
	var names []string
	for name, content := range pages {
		raw, err := os.ReadFile(filepath.Join(docs, filepath.FromSlash(name)))
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("read the pages: %w", err)
		}
		if err != nil || string(raw) != content {
			names = append(names, name)
		}
	}
	present, err := filepath.Glob(filepath.Join(docs, findingPages, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
	}
	for _, path := range present {
		name := findingPages + "/" + filepath.Base(path)
		if _, wanted := pages[name]; !wanted {
			names = append(names, name)
		}
	}
	return names, nil
}

// recipe is a fix that a guide shows, as the agent prints it for a node of its tests.
type recipe struct {
	name   string
	id     check.ID
	reason string
	// tools that are shown; all when empty.
	tools []check.Tool
}

func recipes() []recipe {
	return []recipe{
		{name: "make-vlan-interface", id: "PN102", reason: "VLANInterfaceMissing"},
		{name: "lead-replies-back", id: "PN501", reason: "ReturnPathElsewhere", tools: []check.Tool{check.Netplan}},
	}
}

// fixes writes each recipe for each tool: table make-vlan-interface-netplan and so on.
func fixes(root string) (map[string]string, error) {
	examples, err := Examples(root)
	if err != nil {
		return nil, err
	}
	written := map[string]string{}
	for _, r := range recipes() {
		i := slices.IndexFunc(examples[r.id], func(f check.Finding) bool { return f.Reason == r.reason })
		if i < 0 {
			return nil, fmt.Errorf("there is no example of %s with the reason %s", r.id, r.reason)
		}
		for _, fix := range examples[r.id][i].Fixes {
			if len(r.tools) > 0 && !slices.Contains(r.tools, fix.Tool) {
				continue
			}
			written[r.name+"-"+strings.ToLower(string(fix.Tool))] += steps(fix)
		}
	}
	return written, nil
}

// steps are the actions in their order, with those that no command does.
func steps(fix check.Fix) string {
	var b strings.Builder
	if fix.File != "" {
		fmt.Fprintf(&b, "Write to `%s`:\n\n```\n%s```\n\n", fix.File, fix.Content)
	}
	if len(fix.Commands) > 0 {
		fmt.Fprintf(&b, "```sh\n%s\n```\n\n", strings.Join(fix.Commands, "\n"))
	}
	if fix.Note != "" {
		fmt.Fprintf(&b, "Note: %s.\n\n", fix.Note)
	}
	return b.String()
}

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
