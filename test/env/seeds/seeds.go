// Package seeds says how many random starts a test takes: a bounded share in every run, many more in a long one, and
// fewer in a short one.
package seeds

import (
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable by which the usual number of random starts is multiplied.
const Variable = "PNAP_SEED_FACTOR"

// shortShare is by what the usual number is divided with `go test -short`.
const shortShare = 4

// Count returns how many random starts a test takes whose usual number is given.
func Count(tb testing.TB, usual int) int {
	tb.Helper()
	return count(tb, usual, testing.Short())
}

func count(tb testing.TB, usual int, short bool) int {
	tb.Helper()
	raw := os.Getenv(Variable)
	if raw == "" {
		if short {
			return max(1, usual/shortShare)
		}
		return usual
	}
	factor, err := strconv.Atoi(raw)
	if err != nil || factor < 1 {
		tb.Fatalf("%s=%q: want a whole number from 1", Variable, raw)
	}
	return usual * factor
}
