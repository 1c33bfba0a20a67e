// Package testlog gives a test the log lines of what it calls, and no other test's: shown when it fails, or with -v.
package testlog

import (
	"context"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// verbosity is that of a controller whose log shows each of its steps.
const verbosity = 2

// Context returns the context of the test with a logger that writes into the test's own output. What a goroutine logs
// after the end of the test goes to the log of the process.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	return klog.NewContext(tb.Context(), ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(verbosity))))
}

// At returns the context of the test with a logger of that verbosity, and what was logged so far.
func At(tb testing.TB, verbosity int) (ctx context.Context, logged func() string) {
	tb.Helper()
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(verbosity), ktesting.BufferLogs(true)))
	return klog.NewContext(tb.Context(), logger), func() string {
		if sink, ok := logger.GetSink().(ktesting.Underlier); ok {
			return sink.GetBuffer().String()
		}
		return ""
	}
}
