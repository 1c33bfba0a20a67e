package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// A Service is set up and taken away at each level of the log: decisions and operations at 2, objects at 3, calls at 5.
func TestWhatIsLoggedAboutAService(t *testing.T) {
	const decision, operation = "Decided about a Service", `operation="buy IP block"`
	const objects, answer = "Objects of the decision", `\"cidr\":\"`
	const call, exchange = "Ensured the address of a Service", `operation="get token"`
	for _, test := range []struct {
		level         int
		shown, absent []string
	}{
		{level: 0, absent: []string{decision, operation, objects, answer, call, exchange}},
		{level: 2, shown: []string{decision, operation}, absent: []string{objects, answer, call, exchange}},
		{level: 3, shown: []string{decision, operation, objects, answer}, absent: []string{call, exchange}},
		{level: 5, shown: []string{decision, operation, objects, answer, call, exchange, "Released the address"}},
	} {
		t.Run(fmt.Sprint(test.level), func(t *testing.T) {
			w := newWorld(t)
			var logged func() string
			w.ctx, logged = testlog.At(t, test.level)
			w.service("web")
			w.settle("web")
			w.delete("web")
			w.settle("web")
			text := logged()
			for _, want := range test.shown {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing", want)
				}
			}
			for _, other := range test.absent {
				if strings.Contains(text, other) {
					t.Errorf("%q belongs to a higher level", other)
				}
			}
			if strings.Contains(text, clientSecret) || strings.Contains(text, "Bearer ") {
				t.Error("the log contains a secret")
			}
			t.Logf("figure log_lines_of_a_service_at_level_%d %d lines", test.level, strings.Count(text, "\n"))
		})
	}
}
