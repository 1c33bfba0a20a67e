package controllers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// TestPlaces: the networks of all objects are served, each by one Balancer, once the objects were read; before that
// only that of the option.
func TestPlaces(t *testing.T) {
	store := kubefake.NewStore()
	west := &v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1beta1.PublicNetworkSpec{
		ID: "60473c2509268bc77fd06d2b", Announcer: v1beta1.AnnouncerAgent, Members: v1beta1.MemberPolicy{
			NodeSelector: []v1beta1.NodeRequirement{{Key: "edge", Operator: "Exists"}}}}}
	if _, err := store.PublicNetworks().Create(t.Context(), west, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	build := func() *Controllers {
		return New(Config{
			Options: &config.Config{BlockSize: "/29", LoadBalancer: config.LoadBalancer{
				Announcer: contract.AnnouncerAgent, Network: network.Named{
					Name: v1beta1.DefaultNetwork, ID: "60473c2509268bc77fd06d29"}},
				AnnotationIPLocation: contract.ServiceIPLocation},
			Client: store.Client(), IPBlocks: store.IPBlocks(), PublicNetworks: store.PublicNetworks(),
			Informers: informers.NewSharedInformerFactory(store.Client(), 0), Events: record.NewFakeRecorder(100),
			Metrics: NewMetrics(),
		})
	}
	c := build()
	if p := c.places(); len(p.Served) != 1 || !p.Partial {
		t.Errorf("nothing read: %+v", p)
	}
	if served, all := c.published(); len(served) != 1 || all {
		t.Errorf("nothing read, but all is published: %+v", served)
	}
	look(t, c)
	p := c.places()
	if named := p.Named(); p.Partial || p.LocationAnnotation != contract.ServiceIPLocation || len(named) != 2 ||
		named[0].Name != "default" || named[1].Name != "west" || named[1].ID != west.Spec.ID {
		t.Errorf("%+v", p)
	}
	served, complete := c.published()
	if !complete || len(served) != 2 || served[1].ID != west.Spec.ID ||
		served[1].Announcer != contract.AnnouncerAgent || !served[1].Selector.Matches(labels.Set{"edge": "yes"}) ||
		served[1].Selector.Matches(labels.Set{}) {
		t.Errorf("published: %+v", served)
	}
	if rule := c.carriersOf(west.Spec.ID); rule.Network != west.Spec.ID || rule.Selector == nil {
		t.Errorf("%+v", rule)
	}
	if rule := c.carriersOf(""); rule.Network != c.options.LoadBalancer.Network.ID || rule.Selector != nil {
		t.Errorf("%+v", rule)
	}
	all := newBalancers(c.balancerConfig(), c.further)
	if of := all.of("west"); of == nil || all.of("west") != of || all.of("default") == of {
		t.Error("each network has one Balancer")
	}
	c.options.Location = "ASH"
	if p := c.places(); p.LocationAnnotation != "" {
		t.Errorf("the option goes before the annotation: %+v", p)
	}
	c.options.DryRun = true
	if p := c.places(); len(p.Served) != 1 || p.Partial {
		t.Errorf("a dry run previews the network of the option: %+v", p)
	}
	if served, all := c.published(); len(served) != 1 || !all {
		t.Errorf("a dry run previews the network of the option: %+v", served)
	}
}

// look has the controller of PublicNetworks read the objects once.
func look(t *testing.T, c *Controllers) {
	t.Helper()
	built, err := c.Build("phoenixnap-public-network")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.config.Informers.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- built.Run(ctx) }()
	done := func(context.Context) (bool, error) {
		_, read := c.further.Served()
		return read, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, done); err != nil {
		t.Errorf("the objects are not read: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.config.Informers.Shutdown()
}
