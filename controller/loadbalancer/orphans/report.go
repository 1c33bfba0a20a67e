package orphans

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Reports takes what is known of blocks.
type Reports interface {
	// Publish writes it for readers of ConfigMaps in kube-system.
	Publish(ctx context.Context, r contract.BlockReport) error
}

// publish writes what one pass found. A failure changes nothing for the account, so it is tried again at
// the next pass.
func (c *Collector) publish(ctx context.Context, all []plan.Block, f facts, askedAt time.Time) {
	if c.config.Reports == nil {
		return
	}
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
	if err := c.config.Reports.Publish(ctx, r); err != nil && ctx.Err() == nil {
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
