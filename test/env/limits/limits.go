// Package limits keeps apart how long a test waits and how soon something has to happen.
package limits

import (
	"flag"
	"time"
)

// Wait is how long a test waits for what another process or goroutine does. A machine that does other things, too, may
// starve it for seconds.
const Wait = 30 * time.Second

// hold is for a machine that does nothing else meanwhile, as make faults wants it.
var hold = flag.Bool("hold", false, "hold measured times to their limits")

// Held reports whether the machine does nothing else, so that timers may be as short as the shipped ones.
func Held() bool { return *hold }

// Late reports whether something took too long. Without -hold nothing is late.
func Late(took, most time.Duration) bool { return Held() && took > most }
