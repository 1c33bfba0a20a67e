package controllers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// TestPlaces: the networks of all objects are served, each by one Balancer, once the objects were read; before that,
// and without being asked to, only that of the option.
func TestPlaces(t *testing.T) {
	store := kubefake.NewStore()
	west := &v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1beta1.PublicNetworkSpec{
		ID: "60473c2509268bc77fd06d2b", Announcer: v1beta1.AnnouncerKubeVIP}}
	if _, err := store.PublicNetworks().Create(t.Context(), west, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	build := func(several bool) *Controllers {
		return New(Config{
			Options: &config.Config{BlockSize: "/29", LoadBalancer: config.LoadBalancer{
				Announcer: contract.AnnouncerKubeVIP, NetworkID: "60473c2509268bc77fd06d29"},
				AnnotationIPLocation: contract.ServiceIPLocation},
			Client: store.Client(), IPBlocks: store.IPBlocks(), PublicNetworks: store.PublicNetworks(),
			Informers: informers.NewSharedInformerFactory(store.Client(), 0), Events: record.NewFakeRecorder(100),
			Metrics: NewMetrics(), SeveralNetworks: several,
		})
	}
	for _, several := range []bool{false, true} {
		c := build(several)
		if p := c.places(); len(p.Served) != 1 || p.Partial != several {
			t.Errorf("several %t, nothing read: %+v", several, p)
		}
		look(t, c)
		p := c.places()
		if named := p.Named(); p.Partial || p.LocationAnnotation != contract.ServiceIPLocation || several !=
			(len(named) == 2 && named[1].Name == "west" && named[1].ID == west.Spec.ID) || named[0].Name != "default" {
			t.Errorf("several %t: %+v", several, p)
		}
		if !several {
			continue
		}
		all := newBalancers(c.balancerConfig(), c.further)
		west := all.of("west")
		if west == nil || all.of("west") != west || all.of("default") == west {
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
	done := func(ctx context.Context) (bool, error) {
		if _, read := c.further.Served(); c.config.SeveralNetworks {
			return read, nil
		}
		list, err := c.config.PublicNetworks.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 2, nil
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
