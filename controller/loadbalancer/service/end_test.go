package service

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestIsGone: a patch that names the UID of a Service meets a conflict when another Service has its name.
func TestIsGone(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"not found": {apierrors.NewNotFound(services, "web"), true},
		"conflict":  {apierrors.NewConflict(services, "web", errors.New("the UID is another")), true},
		"forbidden": {apierrors.NewForbidden(services, "web", nil), false},
		"none":      {nil, false},
	} {
		if got := isGone(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
