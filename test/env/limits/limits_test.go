package limits

import (
	"testing"
	"time"
)

func TestLate(t *testing.T) {
	defer func(before bool) { *hold = before }(*hold)
	for _, held := range []bool{false, true} {
		*hold = held
		if Late(time.Second, time.Second) || Late(time.Second+1, time.Second) != held {
			t.Errorf("-hold=%t: a second is late: %t, more than a second: %t", held, Late(time.Second, time.Second),
				Late(time.Second+1, time.Second))
		}
	}
}
