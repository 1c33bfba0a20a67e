//go:build unix

package diagnose

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal tells how wide a terminal is, and whether the file is one (tty_ioctl(4)).
func terminal(file *os.File) (columns int, is bool) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
