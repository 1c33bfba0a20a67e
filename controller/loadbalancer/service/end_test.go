package service

import (
	"context"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// TestAnEndBeforeTheStartIsNoError: a process that is stopped while it starts ends quietly.
func TestAnEndBeforeTheStartIsNoError(t *testing.T) {
	kube := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(kube, 0)
	controller := New(Config{Kube: kube, Services: factory.Core().V1().Services(), Nodes: factory.Core().V1().Nodes()})
	ctx, cancel := context.WithCancel(testlog.Context(t))
	factory.Start(ctx.Done())
	cancel()
	factory.Shutdown()
	if err := controller.Run(ctx); err != nil {
		t.Errorf("ended with %v", err)
	}
}
