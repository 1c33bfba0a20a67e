package reference

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/repo/docs/source"
)

// Tables writes every table of the pages by its name. root is the project's directory, help is what the commands of the
// agent print with --help.
func Tables(root string, constants []source.Constant, help map[string]string) (map[string]string, error) {
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
	var errs []error
	for _, s := range Selections(constants) {
		written, err := s.write(w, constants)
		tables[s.table], errs = written, append(errs, err)
	}
	for _, command := range []string{"run", "diagnose"} {
		written, err := agentFlags(help[command], command == "run")
		tables["agent-"+command+"-flags"], errs = written, append(errs, err)
	}
	return tables, errors.Join(errs...)
}

// Selections are the tables that list constants.
func Selections(constants []source.Constant) []Selection {
	return slices.Concat(namesTables(), conditionTables(), eventTables(constants))
}

// Lists reports whether one of the tables lists the constant.
func Lists(tables []Selection, c source.Constant) bool {
	return slices.ContainsFunc(tables, func(s Selection) bool {
		return slices.ContainsFunc(s.of, func(each choice) bool { return each.takes(c) })
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
			page := path.Join("findings", strings.ToLower(string(e.ID))+".md")
			rows = append(rows, []string{code(reason), fmt.Sprintf("[%s](%s)", e.ID, page), code(condition),
				string(e.Severity), e.Title})
		}
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return table([]string{"reason", "finding", "condition", "severity", "what is not so"}, rows)
}
