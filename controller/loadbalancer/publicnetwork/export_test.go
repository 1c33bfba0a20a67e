package publicnetwork

import "context"

// Look does what Run does once.
func (r *Reconciler) Look(ctx context.Context) error {
	_, err := r.sync(ctx)
	return err
}
