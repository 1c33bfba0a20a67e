package config

import (
	"strings"
	"testing"
)

func TestUnknownVariablesAreNamed(t *testing.T) {
	environ := []string{"PATH=/bin", "PNAP_LOCATION=ASH", "PNAP_LOCATON=hunter2", "PNAP_MAX_IP_BLOCK=1",
		"PNAP_API_SERVR_PORT=6443", "PNAP_AGENT_UPLINK=bond0", "PNAP_CLIENT_ID", "pnap_location=x",
		// Services "pnap-web" and "pnap-service-port" in the same namespace.
		"PNAP_WEB_SERVICE_HOST=10.0.0.1", "PNAP_WEB_SERVICE_PORT=80", "PNAP_WEB_SERVICE_PORT_HTTP=80",
		"PNAP_WEB_PORT=tcp://10.0.0.1:80", "PNAP_WEB_PORT_80_TCP_ADDR=10.0.0.1",
		"PNAP_SERVICE_PORT_SERVICE_HOST=10.0.0.2", "PNAP_SERVICE_PORT_PORT=tcp://10.0.0.2:80"}
	want := []string{"PNAP_API_SERVR_PORT", "PNAP_LOCATON", "PNAP_MAX_IP_BLOCK"}
	got := UnknownVariables(environ)
	if len(got) != len(want) {
		t.Errorf("%q, want %d", got, len(want))
	}
	for i, sentence := range got {
		if name := strings.Fields(sentence)[2]; name != want[i] || strings.Contains(sentence, "hunter2") {
			t.Errorf("%q, want %q", sentence, want[i])
		}
		for _, o := range Options() {
			if !strings.Contains(sentence, o.Env) {
				t.Errorf("%q does not name %s", sentence, o.Env)
			}
		}
	}
}
