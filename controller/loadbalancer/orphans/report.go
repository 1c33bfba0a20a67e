package orphans

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// refreshAfter is when a report is written again although nothing changed, so that readers know that it is current.
const refreshAfter = 5 * time.Minute

// reportStore stores the state of the blocks in a ConfigMap, for people and programs without phoenixNAP credentials.
type reportStore struct {
	configMaps typedcorev1.ConfigMapInterface
	published  *contract.BlockReport
}

// publish writes the report if it differs, or if the last one is older than refreshAfter.
func (s *reportStore) publish(ctx context.Context, r contract.BlockReport) error {
	if last := s.published; last != nil && r.Looked.Before(last.Looked.Add(refreshAfter)) {
		same := r
		same.Looked = last.Looked
		if reflect.DeepEqual(*last, same) {
			return nil
		}
	}
	if err := s.write(ctx, r); err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	s.published = &r
	return nil
}

// write replaces whatever is there: only the controller writes it, and nothing depends on it.
func (s *reportStore) write(ctx context.Context, r contract.BlockReport) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.BlockReportName, Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{contract.BlockReportKey: text},
	}
	_, err = s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.configMaps.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}

// publish reports the result of one pass. A failure has no effect on the account; the next pass tries again.
func (c *Collector) publish(ctx context.Context, all []plan.Block, f facts, askedAt time.Time) {
	r := contract.BlockReport{
		Looked: askedAt.UTC().Truncate(time.Second), NetworkID: c.config.NetworkID, MaxBlocks: c.config.MaxBlocks,
		Collecting: c.config.Collect,
	}
	for _, b := range all {
		switch {
		case plan.OfCluster(b, f.cluster):
			r.Blocks = append(r.Blocks, c.reported(b, f))
		case plan.Brought(b, f.cluster, c.config.Brought):
			r.Blocks = append(r.Blocks, describe(b, contract.StandingBrought))
		}
	}
	slices.SortFunc(r.Blocks, func(a, b contract.ReportedBlock) int { return cmp.Compare(a.ID, b.ID) })
	if err := c.reports.publish(ctx, r); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to publish the report about IP blocks")
	}
}

// reported describes a block of the cluster. What is held against it counts once a second look has confirmed it.
func (c *Collector) reported(b plan.Block, f facts) contract.ReportedBlock {
	s := judge(b, f)
	suspicion := c.suspicions[b.ID]
	switch {
	case !s.suspect():
		return describe(b, string(s))
	case suspicion == nil || suspicion.looks < confirmed:
		return describe(b, contract.StandingChecking)
	}
	block := describe(b, string(suspicion.standing))
	since := suspicion.since.UTC().Truncate(time.Second)
	block.Since = &since
	return block
}

func describe(b plan.Block, standing string) contract.ReportedBlock {
	block := contract.ReportedBlock{
		ID: b.ID, CIDR: b.CIDR, Location: b.Location, Status: string(b.Status), AssignedTo: b.ResourceID,
		Standing: standing,
	}
	block.Purpose, block.Name = purposeOf(b)
	if !b.CreatedOn.IsZero() {
		created := b.CreatedOn.UTC().Truncate(time.Second)
		block.Created = &created
	}
	return block
}

// purposeOf says what the tags of a block name, in the order of ipblock.Owner.Owns.
func purposeOf(b plan.Block) (purpose, name string) {
	service, tagged := serviceOf(b)
	switch {
	case tagged && service != "":
		return contract.PurposeService, service
	case !tagged && b.Tags[contract.TagPool] != "":
		return contract.PurposePool, b.Tags[contract.TagPool]
	case !tagged && b.Tags[contract.TagNodes] != "":
		return contract.PurposeNodes, ""
	default:
		return "", ""
	}
}
