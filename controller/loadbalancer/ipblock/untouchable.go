package ipblock

import "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"

// Untouchable refuses a block that the provider never changes and from which it gives no address, whoever owns or names
// it; refused is false for every other one. Nothing is bought in its place either: what becomes of it is not known, and
// a person has to decide.
func Untouchable(b network.Block) (refusal Step, refused bool) {
	switch {
	case b.SystemManaged:
		return RefuseStep(b, BlockUnusable, "IP block %s (%s) is managed by phoenixNAP and cannot serve Services or "+
			"nodes; name another one", b.ID, b.CIDR), true
	case b.Status == network.Subnetted:
		return RefuseStep(b, BlockUnusable, "IP block %s (%s) is divided into smaller ones (status %s) and cannot be "+
			"assigned itself; name an IPBlock of one of these instead, delete them in the phoenixNAP portal, or "+
			"remove the tags of this one if it serves something else now", b.ID, b.CIDR, b.Status), true
	case progress(b.Status) == rankUnknown:
		return statusNotKnown(b), true
	default:
		return Step{}, false
	}
}

// anyUntouchable returns the refusal of the first block of the owner that is untouchable.
func (account Account) anyUntouchable(owner network.Owner) (refusal Step, refused bool) {
	for _, s := range account.Owned(owner) {
		if refusal, refused = Untouchable(s.Block); refused && !s.Hidden {
			return refusal, true
		}
	}
	return Step{}, false
}
