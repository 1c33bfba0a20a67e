//go:build linux

package kernel

import (
	"context"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/kernel/machine"
)

// Prepare makes ready what Main and the network lab need with these programs of the system: their packages, and the
// parts of the virtual machine where the running kernel has no 802.1Q. It may be left out; called before, it installs
// and downloads where the user sees it instead of in the middle of a test.
func Prepare(ctx context.Context, programs ...string) error {
	inPlace, err := InPlace(ctx)
	switch {
	case err != nil:
		return err
	case inPlace:
		return Require(ctx, programs...)
	default:
		return machine.Prepare(ctx, programs)
	}
}
