package testlog_test

import (
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

func TestEachTestHasItsOwnLog(t *testing.T) {
	for _, name := range []string{"one", "other"} {
		t.Run(name, func(t *testing.T) {
			logger := klog.FromContext(testlog.Context(t))
			logger.Info("A line", "of", name)
			sink, ok := logger.GetSink().(ktesting.Underlier)
			if !ok || sink.GetUnderlying() != ktesting.TL(t) {
				t.Errorf("the logger writes to %T, want this test", logger.GetSink())
			}
		})
	}
}

func TestALineAfterTheTestIsNoPanic(t *testing.T) {
	var left klog.Logger
	t.Run("short", func(t *testing.T) { left = klog.FromContext(testlog.Context(t)) })
	left.Info("A goroutine ends after its test")
}
