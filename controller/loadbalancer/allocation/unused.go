package allocation

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// Import creates the object of a block of the account that was bought for a Service and that no object names any more.
func Import(ctx context.Context, objects Objects, network, blockID string, service ipblock.Holder) (ipblock.Record,
	error) {
	object := bought(v1beta1.NamePrefix+blockID, network, v1beta1.PurposeService)
	object.Spec.BlockID = blockID
	object.Spec.ServiceRef = &v1beta1.ServiceReference{Namespace: service.Namespace, Name: service.Name}
	created, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return ipblock.Record{}, failed("create", object.Name, err)
	}
	imported, _ := RecordOf(created)
	return imported, nil
}

// ShowUnused writes what the object of a block shows whose Service is gone. ErrConflict where it is not the version any
// more that was read.
func ShowUnused(ctx context.Context, objects Objects, r ipblock.Record, report ipblock.Report, now time.Time) error {
	object, err := objects.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return failed("read", r.Name, err)
	}
	object.ResourceVersion = r.Version
	show(object, report, metav1.NewTime(now))
	_, err = objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return failed("save", r.Name, err)
}

// ShowConditions writes only conditions and location of an object whose addresses several have. ErrConflict where it is
// not the version any more that was read, if the record has one.
func ShowConditions(ctx context.Context, objects Objects, r ipblock.Record, report ipblock.Report,
	now time.Time) error {
	object, err := objects.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return failed("read", r.Name, err)
	}
	object.ResourceVersion = cmp.Or(r.Version, object.ResourceVersion)
	object.Status.Location = report.Location
	if report.CIDR.IsValid() {
		object.Status.CIDR = report.CIDR.String()
		object.Status.Gateway = network.Gateway(report.CIDR).String()
	}
	setConditions(&object.Status, report, metav1.NewTime(now))
	_, err = objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return failed("save", r.Name, err)
}
