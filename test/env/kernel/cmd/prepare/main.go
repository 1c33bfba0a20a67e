//go:build linux

// Command prepare makes ready what tests and the network lab need of the system: packages, the tools that
// configure a network, and the parts of a virtual machine. It says before what it installs.
package main

import (
	"context"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/fixes"
)

func main() {
	command.Main(func(ctx context.Context) error {
		err := kernel.Prepare(ctx, "nft", "iptables", "ip", "bridge", "tc", "setpriv", "dbus-daemon")
		if err == nil {
			_, err = fixes.Unpack(ctx)
		}
		return err
	})
}
