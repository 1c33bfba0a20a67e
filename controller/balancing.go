package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/admission"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/apiserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/blockreport"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/heartbeatkey"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

func (w *wiring) services() (loop, error) {
	core := w.completed.SharedInformers.Core().V1()
	return service.New(service.Config{
		Kube:      w.completed.Client,
		Services:  core.Services(),
		Nodes:     core.Nodes(),
		Balancer:  w.balancer(),
		Events:    w.completed.EventRecorder,
		Metrics:   w.metrics.services,
		Workers:   int(w.completed.ComponentConfig.ServiceController.ConcurrentServiceSyncs),
		Selector:  w.config.ServiceNodeSelector,
		Announcer: w.config.LoadBalancer.Announcer,
	}), nil
}

func (w *wiring) balancer() *reconcile.Balancer {
	core := w.completed.SharedInformers.Core().V1()
	return reconcile.New(reconcile.Config{
		Cloud:    w.api,
		Account:  w.account,
		Ledgers:  w.ledgers,
		Buyer:    w.buyer,
		Kube:     w.completed.Client,
		Services: core.Services().Lister(),
		Nodes:    core.Nodes().Lister(),
		Events:   w.completed.EventRecorder,
		Metrics:  w.metrics.balancer,

		NetworkID: w.config.LoadBalancer.NetworkID,
		Options: plan.Options{
			Announcer:          w.config.LoadBalancer.Announcer,
			Location:           w.config.Location,
			LocationAnnotation: w.config.AnnotationIPLocation,
			Allocation:         w.config.Allocation,
			BlockSize:          w.config.BlockSize,
			OwnBlocks:          w.config.OwnBlocks,
			NodeBlock:          w.config.NodeIPBlock,
			MaxBlocks:          w.config.MaxIPBlocks,
		},
	})
}

// heartbeatKey is needed where the agents announce.
func (w *wiring) heartbeatKey() (loop, error) {
	if w.config.LoadBalancer.Announcer != contract.AnnouncerAgent {
		return nil, nil
	}
	return heartbeatkey.New(w.completed.Client.CoreV1().Secrets(metav1.NamespaceSystem)), nil
}

// admission runs without an announcer, too: it switches off what an earlier configuration switched on.
func (w *wiring) admission() (loop, error) {
	bindings := w.completed.Client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	return admission.New(bindings, w.config.LoadBalancer.Enabled()), nil
}

func (w *wiring) membership() (loop, error) {
	if !w.config.ManageMembership {
		return nil, nil
	}
	return membership.New(membership.Config{
		Kube:    w.completed.Client,
		Nodes:   w.completed.SharedInformers.Core().V1().Nodes(),
		Events:  w.completed.EventRecorder,
		Servers: w.inventory,
		Account: w.account,
		Cloud:   w.api,
		Buyer:   w.buyer,
		Ledgers: w.ledgers,
		Metrics: w.metrics.membership,

		NetworkID:      w.config.LoadBalancer.NetworkID,
		NodeIPBlock:    w.config.NodeIPBlock,
		WithoutAddress: w.config.NodeAddress == config.NodeAddressNone,
		Selector:       w.config.ServiceNodeSelector,
		MaxBlocks:      w.config.MaxIPBlocks,
	})
}

func (w *wiring) orphans() (loop, error) {
	return orphans.New(orphans.Config{
		Account:   w.account,
		Cloud:     w.api,
		Ledgers:   w.ledgers,
		Kube:      w.completed.Client,
		Services:  w.completed.SharedInformers.Core().V1().Services(),
		Events:    w.completed.EventRecorder,
		Metrics:   w.metrics.orphans,
		Reports:   blockreport.NewStore(w.completed.Client),
		NetworkID: w.config.LoadBalancer.NetworkID,
		Brought:   w.config.OwnBlocks,
		MaxBlocks: w.config.MaxIPBlocks,
		Collect:   w.config.CollectOrphans,
		Grace:     w.config.OrphanGrace,
		NodesKept: w.config.ManageMembership && w.config.NodeIPBlock == "" &&
			w.config.NodeAddress != config.NodeAddressNone,
	}), nil
}

// controlPlane is built without the option, too: it removes what it made while the option was on.
func (w *wiring) controlPlane() (loop, error) {
	certificates, err := apiserver.NewProbe(w.completed.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return apiserver.New(apiserver.Config{
		Kube:         w.completed.Client,
		Services:     w.completed.SharedInformers.Core().V1().Services(),
		Events:       w.completed.EventRecorder,
		Certificates: certificates,
		Port:         w.config.APIServerPort,
		Enabled:      w.config.ControlPlaneEndpoint,
	})
}
