package main

import (
	"context"
	"fmt"
	"maps"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/controllers"
)

// constructors returns the framework's controllers, without the one for routes and with ours in the place of the one
// for Services, and further ones of ours.
func constructors(loops *loops) map[string]app.ControllerInitFuncConstructor {
	all := maps.Clone(app.DefaultInitFuncConstructors)
	delete(all, names.NodeRouteController)
	for _, name := range controllers.Names() {
		all[name] = constructorOf(loops, name)
	}
	return all
}

func constructorOf(loops *loops, name string) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: program},
		Constructor: func(_ app.ControllerInitContext, _ *appconfig.CompletedConfig,
			cloud cloudprovider.Interface) app.InitFunc {
			return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool,
				error) {
				all, ok := cloud.(*controllers.Controllers)
				if !ok {
					return nil, false, fmt.Errorf("the provider is a %T, want our own", cloud)
				}
				built, err := all.Build(name)
				if err != nil || built == nil {
					return nil, false, err
				}
				loops.start(ctx, built)
				return nil, true, nil
			}
		},
	}
}
