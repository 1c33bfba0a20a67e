package reference

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
)

// Examples reads the reports that the checks are tested with (check.Report as JSON, of broken nodes what differs from
// the good node), in the order of the files' names: of each report the findings that are not healthy.
func Examples(root string) (map[check.ID][]check.Finding, error) {
	directory := filepath.Join(root, "agent", "verify", "check", "testdata")
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

//go:embed observations.yaml
var observed []byte

// observation is one in which kube-vip announces.
type observation struct {
	vip.Observation `json:",inline"`
	Lease           kubevip.Lease
}

// observations are one for each way in which the announcement of an address goes wrong, as srv-a sees it.
func observations() ([]vip.Observation, error) {
	var examples []observation
	err := yaml.UnmarshalStrict(observed, &examples)
	var all []vip.Observation
	for _, example := range examples {
		o := example.Observation
		o.Target = vip.Target{Address: netip.AddrFrom4([4]byte{203, 0, 113, 3}), Service: "default/web"}
		o.Interface = "bond0.100"
		o.Node = "srv-a"
		o.Names = map[string]string{"02:00:00:00:00:0b": "srv-b"}
		o.By = kubevip.Announcer{}
		if example.Lease.State != "" {
			example.Lease.Name = "default/kubevip-web"
			example.Lease.Global = "kube-system/plndr-svcs-lock"
			o.Election = example.Lease.Election()
		}
		all = append(all, o)
	}
	return all, err
}
