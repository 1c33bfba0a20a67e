package controller

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// resident is how much memory a process has had at most, in MiB (VmHWM of proc(5), /proc/pid/status).
func resident(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return peakOf(string(raw))
}

// peakOf reads the line VmHWM, whose unit is always kB.
func peakOf(status string) (float64, error) {
	_, rest, found := strings.Cut(status, "VmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 || fields[1] != "kB" {
		return 0, fmt.Errorf("no line VmHWM in kB in %q", status)
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, fmt.Errorf("line VmHWM: %w", err)
	}
	return kilobytes / 1024, nil
}
