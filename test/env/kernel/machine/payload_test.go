//go:build linux

package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLibraries(t *testing.T) {
	out := "\tlinux-vdso.so.1 (0x00007faa0432c000)\n" +
		"\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007faa0401d000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007faa0432e000)\n"
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, parseLibraries(out)); diff != "" {
		t.Errorf("parseLibraries differs (-want +got):\n%s", diff)
	}
}

func TestArgumentsNeverAskForHardwareAcceleration(t *testing.T) {
	args := emulator{kernel: "k", initrd: "i", disk: "/tmp/a,b", memoryMiB: 256, network: true}.arguments()
	line := strings.Join(args, " ")
	for _, want := range []string{"-accel tcg", "-m 256", "file=/tmp/a,,b,format=raw", "readonly=on",
		"-netdev user,id=host", "fd=4"} {
		if !strings.Contains(line, want) {
			t.Errorf("arguments lack %q: %s", want, line)
		}
	}
	if slices.Contains(emulator{}.arguments(), "-drive") || slices.Contains(emulator{}.arguments(), "-netdev") {
		t.Error("a machine without disk and network gets one")
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	got := evidence(strings.Repeat("x", 9900) + "the end")
	if len(got) > tailSize+1 || !strings.HasSuffix(got, "the end") {
		t.Errorf("%d bytes are kept, ending in %q", len(got), got[len(got)-10:])
	}
}
