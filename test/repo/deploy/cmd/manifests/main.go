// Command manifests renders every overlay below deploy/overlays to deploy/rendered/<overlay>/deployment.yaml, the file
// that users apply. With -version, it first writes that version of the images into deploy/base.
package main

import (
	"context"
	"flag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
)

func main() {
	version := flag.String("version", "",
		"version of the images, such as v2.0.0; empty keeps what stands in deploy/base")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *version) })
}

func run(ctx context.Context, version string) error {
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	if version != "" {
		if err := deploy.Stamp(root, version); err != nil {
			return err
		}
	}
	return deploy.Write(ctx, root)
}
