package pages

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Examples reads the reports that the checks are tested with (check.Report as JSON, of broken nodes what differs from
// the good node), in the order of the files' names: of each report the findings that are not healthy.
func Examples(directory string) (map[check.ID][]check.Finding, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("find the examples in %s: %w", directory, err)
	}
	examples := map[check.ID][]check.Finding{}
	for _, path := range paths {
		if err := read(path, examples); err != nil {
			return nil, err
		}
	}
	return examples, nil
}

func read(path string, into map[check.ID][]check.Finding) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read an example: %w", err)
	}
	var report check.Report
	if err := json.Unmarshal(raw, &report); err != nil {
		return fmt.Errorf("read the example %s: %w", path, err)
	}
	for _, f := range report.Findings {
		switch f.Status {
		case check.Fail, check.Warn, check.Unknown:
			into[f.ID] = append(into[f.ID], f)
		case check.OK, check.Skip:
		}
	}
	return nil
}
