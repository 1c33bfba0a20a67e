package machine

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestKernelLog(t *testing.T) {
	const early = "[   30.1] watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [backend:329]\r\n"
	const late = "[   96.4] watchdog: BUG: soft lockup - CPU#1 stuck for 70s! [busybox:231]\r\n"
	for name, tc := range map[string]struct{ written, want string }{
		"nothing":       {"[ 0.1] booting\r\n", ""},
		"waited":        {early + "[ 31.0] goes on\r\n", ""},
		"stuck":         {early + late, "its kernel is stuck: CPU#1 stuck for 70s! [busybox:231]"},
		"half a line":   {early + strings.TrimSuffix(late, "\n"), ""},
		"another watch": {"[ 9.9] INFO: task stuck for 90s\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			c := kernelLog{stuck: func(err error) {
				if !errors.Is(err, errStuck) {
					t.Errorf("%v is not errStuck", err)
				}
				got = err.Error()
			}}
			if _, err := io.Copy(&c, iotest.OneByteReader(strings.NewReader(tc.written))); err != nil {
				t.Fatal(err)
			}
			if got != tc.want || c.String() != tc.written {
				t.Errorf("of %q it says %q, want %q", c.String(), got, tc.want)
			}
		})
	}
}
