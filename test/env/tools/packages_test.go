package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInstaller(t *testing.T) {
	for name, tc := range map[string]struct {
		euid      int
		apt, sudo bool
		want      []string
		err       string
	}{
		"root":                   {euid: 0, apt: true, want: nil},
		"root with sudo":         {euid: 0, apt: true, sudo: true, want: nil},
		"user with sudo":         {euid: 1000, apt: true, sudo: true, want: []string{"sudo", "-n"}},
		"user without sudo":      {euid: 1000, apt: true, err: "run apt-get install nftables busybox-static as root"},
		"root, no Debian":        {euid: 0, err: "no apt-get here"},
		"user, sudo, no Debian":  {euid: 1000, sudo: true, err: "no apt-get here"},
		"user, nothing, nothing": {euid: 1000, err: "nftables busybox-static"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := installer([]string{"nftables", "busybox-static"}, tc.euid, tc.apt, tc.sudo)
			checkError(t, err, tc.err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("prefix (-want +got):\n%s", diff)
			}
		})
	}
}

// fakeApt puts an apt-get in front of PATH that writes down how it was called and installs a package by making
// a program of its name, and a sudo that asks for no password.
func fakeApt(t *testing.T, install string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	writeFile(t, filepath.Join(dir, "apt-get"), "#!/bin/sh\necho \"$DEBIAN_FRONTEND $*\" >>"+log+
		"\n[ \"$1\" = install ] || exit 0\n"+install+"\n", 0o755)
	writeFile(t, filepath.Join(dir, "sudo"), "#!/bin/sh\n[ \"$1\" = -n ] || exit 1\nshift\nexec \"$@\"\n", 0o755)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("BIN", dir)
	return log
}

const putProgram = `for p; do case $p in pnap-*) printf '#!/bin/sh\n' >"$BIN/$p"; chmod +x "$BIN/$p";; esac; done`

func TestPackagesInstallsWhatIsMissing(t *testing.T) {
	log := fakeApt(t, putProgram)
	box := &Toolbox{Cache: t.TempDir(), Progress: &lockedWriter{}}
	for range 2 { // the second time nothing is missing
		if err := box.Packages(t.Context(), "sh", "pnap-one", "pnap-two", "pnap-one"); err != nil {
			t.Fatal(err)
		}
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := "noninteractive update -q -o DPkg::Lock::Timeout=300\n" +
		"noninteractive install -y --no-install-recommends -q -o DPkg::Lock::Timeout=300 pnap-one pnap-two\n"
	if diff := cmp.Diff(want, string(calls)); diff != "" {
		t.Errorf("calls of apt-get (-want +got):\n%s", diff)
	}
	if said := progress(t, box); !strings.HasPrefix(said, "installing pnap-one, pnap-two with ") {
		t.Errorf("progress = %q, want it said before", said)
	}
}

func TestPackagesThatCannotBeInstalled(t *testing.T) {
	for name, tc := range map[string]struct{ install, err string }{
		"apt-get fails": {install: "echo 'E: Unable to locate package pnap-one' >&2; exit 100",
			err: "E: Unable to locate package pnap-one"},
		"program still absent": {install: "true", err: "still not found in PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeApt(t, tc.install)
			box := &Toolbox{Cache: t.TempDir()}
			checkError(t, box.Packages(t.Context(), "pnap-one"), tc.err)
		})
	}
}

func TestProgramNamesThePackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Program("pnap-none")
	checkError(t, err, "apt-get install pnap-none")
	for program, want := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs",
		"nft": "nftables", "busybox": "busybox-static", "ip": "iproute2", "tcpdump": "tcpdump"} {
		if got := packageOf(program); got != want {
			t.Errorf("packageOf(%s) = %s, want %s", program, got, want)
		}
	}
}

func TestBusyboxMustBeStatic(t *testing.T) {
	box := smallTree(t, hello)
	static := product(t, box)
	if !IsStatic(static) {
		t.Errorf("%s, built without cgo, is taken for dynamic", static)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "busybox"), "#!/bin/sh\n", 0o755)
	t.Setenv("PATH", dir)
	if diff := cmp.Diff([]string{"busybox-static"}, missingPackages([]string{"busybox"})); diff != "" {
		t.Errorf("with a busybox that is no static program (-want +got):\n%s", diff)
	}
}
