package plan

import "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"

// IsUpToDate judges a plan that a test made.
func (p ServicePlan) IsUpToDate(obs Observed) bool { return p.upToDate(obs) }

// Relevant is the part of Search that says which blocks matter.
func (obs Observed) Relevant(block network.Block) bool { return obs.relevant(block) }

// ObjectsOf are the objects of the Service's blocks.
func (obs Observed) ObjectsOf() Objects { return obs.objects() }
