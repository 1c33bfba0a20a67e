package machine

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// errStuck reports that the machine's kernel said that a processor does not get on. Software emulation has that,
// rarely; what ran on the machine is not to blame for it: test/env/run-tests looks for the text and runs it again.
var errStuck = errors.New("its kernel is stuck")

// stuckFor is for how many seconds a processor may not get on. The kernel says so after 20 s and then again and again
// (https://docs.kernel.org/admin-guide/lockup-watchdogs.html); a machine that only waited for its host gets on.
const stuckFor = 60

var lockup = regexp.MustCompile(`soft lockup - (CPU#\d+ stuck for (\d+)s.*)`)

// kernelLog keeps what the kernel writes and looks for its word that it is stuck.
type kernelLog struct {
	strings.Builder
	// seen is how much of it was looked at.
	seen  int
	stuck func(error)
}

func (c *kernelLog) Write(p []byte) (int, error) {
	n, err := c.Builder.Write(p)
	for {
		line, _, whole := strings.Cut(c.String()[c.seen:], "\n")
		if !whole {
			return n, err
		}
		c.seen += len(line) + 1
		if found := lockup.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			if seconds, _ := strconv.Atoi(found[2]); seconds >= stuckFor {
				c.stuck(fmt.Errorf("%w: %s", errStuck, found[1]))
			}
		}
	}
}
