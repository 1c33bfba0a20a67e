//go:build linux

package netstate

import (
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

const id = "0123456789abcdef01234567"

func TestMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  check.Machine
	}{
		"nothing to read": {nil, check.Machine{}},
		"instance data": {map[string]string{instanceData: `{"v1": {"instance_id": "` + strings.ToUpper(id) +
			`", "local_hostname": "srv-a"}}`},
			check.Machine{ServerID: id, ServerIDFrom: "cloud-init's instance ID", InstanceID: strings.ToUpper(id),
				LocalHostname: "srv-a"}},
		"only an instance ID": {map[string]string{instanceID: id + "\n"},
			check.Machine{ServerID: id, ServerIDFrom: "cloud-init's instance ID", InstanceID: id}},
		"serial number": {map[string]string{dmi + "product_serial": id + "\n", dmi + "product_name": "SYS-510\n"},
			check.Machine{ServerID: id, ServerIDFrom: "the firmware's serial number", Serial: id, Product: "SYS-510"}},
		"other forms do not count": {map[string]string{
			instanceData: `{"v1": {"instance_id": "i-abcdef0123456789"}}`, dmi + "product_serial": "S1234567890",
			dmi + "product_uuid": "01234567-89ab-cdef-0123-456789abcdef"},
			check.Machine{InstanceID: "i-abcdef0123456789", Serial: "S1234567890",
				UUID: "01234567-89ab-cdef-0123-456789abcdef"}},
		"damaged instance data": {map[string]string{instanceData: "{", instanceID: id},
			check.Machine{ServerID: id, ServerIDFrom: "cloud-init's instance ID", InstanceID: id}},
		"too long to be meant": {map[string]string{instanceID: strings.Repeat("a", maxFile+1)}, check.Machine{}},
	} {
		r := &Reader{FileRoot: root(t, tc.files)}
		if got := r.readMachine(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
