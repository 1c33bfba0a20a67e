package ipblock

import "slices"

// BroughtBlock is an IPBlock of source Brought, with which a person says that Services may name a block of the account.
type BroughtBlock struct {
	// Object is the name of the IPBlock, and BlockID the block.
	Object, BlockID string
	// Namespaces are those whose Services may name the block; none for all.
	Namespaces []string
	// Deleted is true once the person has deleted the object.
	Deleted bool
}

// BroughtBlocks are all of them.
type BroughtBlocks []BroughtBlock

// IDs are those of the declared blocks.
func (all BroughtBlocks) IDs() []string {
	ids := make([]string, 0, len(all))
	for _, d := range all {
		ids = append(ids, d.BlockID)
	}
	return ids
}

// TakenUp are the IDs of those whose objects are not deleted.
func (all BroughtBlocks) TakenUp() []string {
	return slices.DeleteFunc(slices.Clone(all), func(d BroughtBlock) bool { return d.Deleted }).IDs()
}

// Named is the block that a Service of a namespace names and may name.
func (all BroughtBlocks) Named(object, namespace string) (BroughtBlock, bool) {
	return find(all, func(d BroughtBlock) bool { return d.Object == object && d.allows(namespace) })
}

// Of is what declares a block that Services of a namespace may name.
func (all BroughtBlocks) Of(blockID, namespace string) (BroughtBlock, bool) {
	return find(all, func(d BroughtBlock) bool { return d.BlockID == blockID && d.allows(namespace) })
}

// allows reports whether Services of a namespace may name the block.
func (d BroughtBlock) allows(namespace string) bool {
	return len(d.Namespaces) == 0 || slices.Contains(d.Namespaces, namespace)
}
