// Package controller measures what the shipped controller costs the phoenixNAP API and the machine, and how long users
// wait for it: the binary at work against a real kube-apiserver and a simulated account that counts requests.
package controller

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Figure is one measured number.
type Figure struct {
	// Name is stable: tables and releases refer to it.
	Name string
	// Value in Unit.
	Value float64
	// Unit such as calls, s or MiB.
	Unit string
	// Limit is the greatest Value that is good enough, where Limited is true.
	Limit   float64
	Limited bool
}

// limited is a figure that must not exceed a limit.
func limited(name string, value float64, unit string, limit float64) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Limit: limit, Limited: true}
}

// reported is a figure that nothing depends on.
func reported(name string, value float64, unit string) Figure {
	return Figure{Name: name, Value: value, Unit: unit}
}

// String is the line that users and scripts read. Whole numbers are counted, all else is timed.
func (f Figure) String() string {
	decimals := 2
	if f.Value == float64(int64(f.Value)) {
		decimals = 0
	}
	return fmt.Sprintf("figure %s %.*f %s", f.Name, decimals, f.Value, f.Unit)
}

// Broken returns an error with the limit that the figure exceeds, or nil.
func (f Figure) Broken() error {
	if !f.Limited || f.Value <= f.Limit {
		return nil
	}
	return fmt.Errorf("%s is %g %s, more than %g", f.Name, f.Value, f.Unit, f.Limit)
}

// Report prints figures as lines and returns an error that names every broken limit.
func Report(out io.Writer, figures []Figure) error {
	var broken []error
	for _, f := range figures {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return fmt.Errorf("print figures: %w", err)
		}
		broken = append(broken, f.Broken())
	}
	return errors.Join(broken...)
}

// resident is how much memory a process has had at most, in MiB (VmHWM of proc(5), /proc/pid/status).
func resident(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return Mebibytes(string(raw), "VmHWM:")
}

// Mebibytes reads a line "<name> <number> kB" of a file of /proc.
func Mebibytes(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != name || fields[2] != "kB" {
			continue
		}
		kibibytes, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return 0, fmt.Errorf("line %s: %w", name, err)
		}
		return kibibytes / 1024, nil
	}
	return 0, fmt.Errorf("no line %s in kB in %q", name, text)
}

// ticksPerSecond is the unit of processor time in /proc/pid/stat (proc(5)); it is 100 on every platform that Go
// supports.
const ticksPerSecond = 100

// ProcessorTime reads the time in user and kernel mode of /proc/pid/stat: fields 14 and 15 (proc(5)). The name, field
// 2, is in parentheses and may hold anything.
func ProcessorTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("processor time: %q is no /proc/pid/stat", stat)
	}
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("processor time: %q is no /proc/pid/stat", stat)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}
