package allocation

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// Report writes what the object of a Service's own block shows. One that is gone, or names another block than was
// reported on, is left as it is.
func (o *Object) Report(ctx context.Context, report ipblock.Report, now time.Time) error {
	object, err := o.objects.Get(ctx, o.fresh.Name, metav1.GetOptions{})
	if err != nil {
		return failed("read", o.fresh.Name, err)
	}
	if object.Spec.BlockID != o.record.BlockID {
		return nil
	}
	show(object, report, metav1.NewTime(now))
	_, err = o.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return failed("save", o.fresh.Name, err)
}

// show sets in a status what is reported.
func show(object *v1beta1.IPBlock, report ipblock.Report, now metav1.Time) {
	status := &object.Status
	allocations := []v1beta1.Allocation{}
	if report.Address.IsValid() {
		allocations = append(allocations, v1beta1.Allocation{Address: report.Address.String(),
			Services: []v1beta1.ServiceReference{*object.Spec.ServiceRef},
			Since:    since(status.Allocations, report, now)})
	}
	status.CIDR = report.CIDR.String()
	status.Gateway = network.Gateway(report.CIDR).String()
	status.Location = report.Location
	_, _, free := ipblock.NewLedger(object.Spec.BlockID, report.CIDR).Count()
	status.Used = fmt.Sprintf("%d/%d", len(allocations), free)
	status.Allocations = &allocations
	setConditions(status, report, now)
}

// setConditions sets the conditions that are reported.
func setConditions(status *v1beta1.IPBlockStatus, report ipblock.Report, now metav1.Time) {
	for kind, c := range map[string]ipblock.Condition{
		v1beta1.ConditionAssigned: report.Assigned, v1beta1.ConditionReady: report.Ready,
		v1beta1.ConditionOrphaned: report.Orphaned,
	} {
		if c.Reason == "" {
			meta.RemoveStatusCondition(&status.Conditions, kind)
			continue
		}
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: c.Reason, Message: c.Message,
			LastTransitionTime: now}
		switch {
		case c.True:
			condition.Status = metav1.ConditionTrue
		case c.Unknown:
			condition.Status = metav1.ConditionUnknown
		default:
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// since is from when the reported address has been allocated.
func since(before *[]v1beta1.Allocation, report ipblock.Report, now metav1.Time) metav1.Time {
	if before != nil && len(*before) == 1 && (*before)[0].Address == report.Address.String() {
		return (*before)[0].Since
	}
	return now
}

// reportOf is what an object shows.
func reportOf(object *v1beta1.IPBlock) ipblock.Report {
	status := object.Status
	report := ipblock.Report{Location: status.Location}
	report.CIDR, _ = netip.ParsePrefix(status.CIDR)
	if status.Allocations != nil && len(*status.Allocations) == 1 {
		report.Address, _ = netip.ParseAddr((*status.Allocations)[0].Address)
	}
	for kind, c := range map[string]*ipblock.Condition{
		v1beta1.ConditionAssigned: &report.Assigned, v1beta1.ConditionReady: &report.Ready,
		v1beta1.ConditionOrphaned: &report.Orphaned,
	} {
		if shown := meta.FindStatusCondition(status.Conditions, kind); shown != nil {
			*c = ipblock.Condition{True: shown.Status == metav1.ConditionTrue,
				Unknown: shown.Status == metav1.ConditionUnknown, Reason: shown.Reason, Message: shown.Message}
		}
	}
	return report
}
