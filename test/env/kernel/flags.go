//go:build linux

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// flags is the command line of a test binary, translated for the virtual machine.
type flags struct {
	// guest is the command line there.
	guest []string
	// outputs are the files that the tests write: path in the machine → path that was asked for.
	outputs map[string]string
	// timeout is the value of -test.timeout; 0 means none.
	timeout time.Duration
}

// outputFlags name files that the test binary writes (go help testflag). Relative names are below -test.outputdir.
var outputFlags = []string{"coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace"}

// hostOnly are flags of the go command that are only valid on the host: its cache and its directories.
var hostOnly = []string{"testlogfile", "outputdir", "gocoverdir", "fuzzcachedir", "fuzzworker"}

// translate reads the arguments that the go command gave to the test binary. The ones that follow the first that is
// no flag, or "--", belong to the tests.
func translate(args []string) (flags, error) {
	f := flags{outputs: map[string]string{}}
	directory := outputDirectory(args)
	for i, arg := range args {
		name, value, isFlag := splitFlag(arg)
		switch {
		case !isFlag:
			f.guest = append(f.guest, args[i:]...)
			return f, nil
		case slices.Contains(hostOnly, name):
		case name == "fuzz" && value != "":
			return flags{}, errFuzz
		case slices.Contains(outputFlags, name) && value != "":
			inside := "/tmp/test-" + name
			if !filepath.IsAbs(value) {
				value = filepath.Join(directory, value)
			}
			f.outputs[inside] = value
			f.guest = append(f.guest, "-test."+name+"="+inside)
		case name == "timeout":
			d, err := time.ParseDuration(value)
			if err != nil {
				return flags{}, fmt.Errorf("flag %s: %w", arg, err)
			}
			f.timeout = d
			f.guest = append(f.guest, arg)
		default:
			f.guest = append(f.guest, arg)
		}
	}
	return f, nil
}

// splitFlag recognises -test.name and -test.name=value, with one dash or two; the go command writes no other form.
// Flags of the tests themselves are returned with an empty name.
func splitFlag(arg string) (name, value string, isFlag bool) {
	if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
		return "", "", false
	}
	trimmed, ours := strings.CutPrefix(strings.TrimLeft(arg, "-"), "test.")
	if !ours {
		return "", "", true
	}
	name, value, _ = strings.Cut(trimmed, "=")
	return name, value, true
}

func outputDirectory(args []string) string {
	for _, arg := range args {
		if name, value, _ := splitFlag(arg); name == "outputdir" {
			return value
		}
	}
	return ""
}

// limit is when the machine is switched off at the latest.
func (f flags) limit() time.Duration {
	if f.timeout <= 0 {
		return withoutLimit
	}
	return f.timeout + bootAllowance
}

// store writes what came back to where the go command expects it.
func (f flags) store(files map[string][]byte) error {
	for inside, data := range files {
		if err := os.WriteFile(f.outputs[inside], data, 0o644); err != nil {
			return fmt.Errorf("store what the tests wrote: %w", err)
		}
	}
	return nil
}
