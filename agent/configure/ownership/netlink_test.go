//go:build linux

package ownership

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestGone(t *testing.T) {
	for err, want := range map[error]bool{
		netlink.LinkNotFoundError{}: true, unix.ENODEV: true, unix.EADDRNOTAVAIL: true, unix.ESRCH: true,
		unix.ENOENT: true, unix.EPERM: false, unix.EEXIST: false, unix.EINVAL: false,
	} {
		if got := Gone(fmt.Errorf("delete it: %w", err)); got != want {
			t.Errorf("%v (%T): %t, want %t", err, err, got, want)
		}
	}
	if Gone(nil) {
		t.Error("nothing is gone without an error")
	}
}
