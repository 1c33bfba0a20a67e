package vlan

import (
	"context"
	"errors"
	"fmt"
)

// Cleanup undoes everything that the agent did to links: it deletes those that it made and restores those that it
// adopted. No Reconciler may run meanwhile. A second call finds nothing to do. done describes what was done.
func Cleanup(ctx context.Context, kernel Kernel) (done []string, err error) {
	seen, err := kernel.Look(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range seen.Links {
		if l.Unreadable != "" {
			errs = append(errs, errors.New(l.Unreadable))
		}
		if !l.Ours {
			continue
		}
		r := &run{kernel: kernel}
		for _, a := range release(l, seen) {
			if err := a.do(ctx, r); err != nil {
				errs = append(errs, fmt.Errorf("clean up %s: %w", l.Name, err))
				break
			}
			if text := texts([]action{a}); text != "" {
				done = append(done, text)
			}
		}
	}
	return done, errors.Join(errs...)
}
