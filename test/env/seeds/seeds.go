// Package seeds defines how many random starts a test takes: a bounded share in every run, many more in a long one.
package seeds

import (
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable by which the usual number of random starts is multiplied.
const Variable = "PNAP_SEED_FACTOR"

// Count returns how many random starts a test takes whose usual number is given.
func Count(tb testing.TB, usual int) int {
	tb.Helper()
	raw := os.Getenv(Variable)
	if raw == "" {
		return usual
	}
	factor, err := strconv.Atoi(raw)
	if err != nil || factor < 1 {
		tb.Fatalf("%s=%q: want a whole number from 1", Variable, raw)
	}
	return usual * factor
}
