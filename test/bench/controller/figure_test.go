package controller

import (
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	var out strings.Builder
	err := Report(&out, []Figure{
		limited("calls_made", 3, "calls", 3), reported("took", 1.2345, "s"), limited("writes", 1, "calls", 0),
		limited("memory", 200.4, "MiB", 200),
	})
	want := "figure calls_made 3 calls\nfigure took 1.23 s\nfigure writes 1 calls\nfigure memory 200.40 MiB\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if want := "writes is 1 calls, more than 0\nmemory is 200.4 MiB, more than 200"; err == nil || err.Error() != want {
		t.Errorf("broken limits are %v, want %q", err, want)
	}
	if err := Report(&out, []Figure{limited("calls_made", 3, "calls", 3)}); err != nil {
		t.Errorf("a figure at its limit: %v", err)
	}
}

func TestPeakOf(t *testing.T) {
	got, err := Mebibytes("Name:\tx\nVmPeak:\t 999999 kB\nVmHWM:\t  102400 kB\nVmRSS:\t 1 kB\n", "VmHWM:")
	if err != nil || got != 100 {
		t.Errorf("peak is %g, %v; want 100 MiB", got, err)
	}
	for _, status := range []string{"", "VmHWM:", "VmHWM:\t1 MB\n", "VmHWM:\tmuch kB\n"} {
		if got, err := Mebibytes(status, "VmHWM:"); err == nil {
			t.Errorf("peak of %q is %g, want an error", status, got)
		}
	}
}

func TestProcessorTime(t *testing.T) {
	const stat = "128 (agent) run) S 1 128 128 0 -1 4194560 4031 0 3 0 217 45 0 0 20 0 9 0 551 1322692608 11018"
	if got, err := ProcessorTime(stat); err != nil || got != 2620*time.Millisecond {
		t.Errorf("processor time %s (%v), want 2.62s", got, err)
	}
	for _, wrong := range []string{"", "128 (agent) S 1", strings.Replace(stat, "217", "many", 1)} {
		if _, err := ProcessorTime(wrong); err == nil {
			t.Errorf("%q has a processor time", wrong)
		}
	}
}
