// Command keeper keeps the way of replies on one server, as the agent does with --manage=return-path, without an API server:
// what the controller would publish are its flags. With --cleanup it removes what was made and ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/netinfo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/returnpath"
)

func main() {
	vlan := flag.Int("vlan", 0, "VLAN ID of the public network")
	blocks := flag.String("blocks", "", "its blocks, separated by commas")
	cleanup := flag.Bool("cleanup", false, "remove what was made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, *vlan, strings.Split(*blocks, ","), *cleanup)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, vlan int, blocks []string, cleanup bool) error {
	expected, err := check.ExpectedByHand(vlan, blocks, nil)
	if err != nil {
		return err
	}
	keeper := returnpath.New(returnpath.Config{
		Expected: func() check.Expected { return expected },
		Watches:  []func(context.Context, func()) error{netinfo.Watch, returnpath.WatchTable},
		Tell:     func(n returnpath.Notice) { fmt.Println(n.Reason, n.Message) },
	})
	if cleanup {
		return keeper.Cleanup(ctx)
	}
	return keeper.Run(ctx)
}
