package reconcile_test

import (
	"context"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// crash is what the process dies of.
type crash struct{}

// mayCrash is called before and after everything that leaves the process.
func (w *world) mayCrash() {
	w.step++
	if w.step == w.crashAt {
		panic(crash{})
	}
}

// syncOrCrash is sync, in a process that may die on the way. A new process follows.
func (w *world) syncOrCrash(name string) (done bool, err error) {
	died := w.dies(func() { done, err = w.sync(name) })
	if died {
		return false, context.Canceled
	}
	return done, err
}

// lookForDrift is the drift pass in a process that may die on the way, or whose API may fail.
func (w *world) lookForDrift() {
	w.dies(func() { _, _ = w.lb.Drifted(w.ctx) })
}

// dies reports whether the process died of what it did. Then a new one is there.
func (w *world) dies(doing func()) (died bool) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if _, planned := cause.(crash); !planned {
			panic(cause)
		}
		died = true
		w.refresh()
		w.restart()
	}()
	doing()
	return false
}

// crashing is the client of a process that may die before or after each change of the account.
type crashing struct {
	*pnap.Client
	world *world
}

func (c crashing) BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (network.Block, error) {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.BuyBlock(ctx, wanted)
}

func (c crashing) DeleteBlock(ctx context.Context, id string) error {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.DeleteBlock(ctx, id)
}

func (c crashing) AssignBlock(ctx context.Context, networkID, blockID string) error {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.AssignBlock(ctx, networkID, blockID)
}

func (c crashing) UnassignBlock(ctx context.Context, networkID, blockID string) error {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.UnassignBlock(ctx, networkID, blockID)
}

func (c crashing) SetBlockTags(ctx context.Context, id string, tags map[string]string) error {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.SetBlockTags(ctx, id, tags)
}

func (c crashing) EnsureTags(ctx context.Context, names ...string) error {
	c.world.mayCrash()
	defer c.world.mayCrash()
	return c.Client.EnsureTags(ctx, names...)
}
