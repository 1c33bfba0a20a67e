package build

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// TestPluginIsInstalledByGo installs the plugin as users do, with `go install`, from a module proxy that serves this
// tree as a release. go install refuses a module with replace directives, a path that does not fit the version, and
// names of files that other systems cannot have; the plugin shows the version that was asked for.
func TestPluginIsInstalledByGo(t *testing.T) {
	release := module.Version{Path: "github.com/phoenixnap/k8s-cloud-provider-bmc/v2", Version: "v2.987.654"}
	proxy := serve(t, release)
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", release.Path+"/controller/kubectl-pnap@"+release.Version)
	cmd.Dir = bin
	// Its own module cache, because the release does not exist. The other modules are those of this machine; a checksum
	// database would be asked about all of them.
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+filepath.Join(bin, "modules"), "GOSUMDB=off",
		"GOFLAGS=-trimpath -modcacherw", "GOWORK=off", "GOPROXY="+strings.Join([]string{"file://" + proxy,
			"file://" + goEnv(t, "GOMODCACHE") + "/cache/download", goEnv(t, "GOPROXY")}, ","))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl-pnap"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), release.Version+" ") {
		t.Errorf("kubectl-pnap version prints %q, %v; want %s", out, err, release.Version)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// serve makes a directory a module proxy with one release of this tree (https://go.dev/ref/mod#goproxy-protocol).
func serve(t *testing.T, release module.Version) string {
	t.Helper()
	proxy := t.TempDir()
	path, err := module.EscapePath(release.Path)
	must(t, err)
	file := filepath.Join(proxy, path, "@v", release.Version)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(file), "list"), []byte(release.Version+"\n"), 0o600))
	info, err := json.Marshal(map[string]string{"Version": release.Version, "Time": "2027-01-31T00:00:00Z"})
	must(t, err)
	must(t, os.WriteFile(file+".info", info, 0o600))
	mod, err := os.ReadFile(root + "go.mod")
	must(t, err)
	must(t, os.WriteFile(file+".mod", mod, 0o600))
	archive, err := os.Create(file + ".zip")
	must(t, err)
	must(t, errors.Join(zip.Create(archive, release, sources(t)), archive.Close()))
	return proxy
}

// sources are the files of the tree that git knows or would take; package zip leaves out the modules below it.
func sources(t *testing.T) []zip.File {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	must(t, err)
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(root + name); !errors.Is(err, fs.ErrNotExist) { // deleted and not yet committed
			files = append(files, source(name))
		}
	}
	return files
}

// root is the root of the tree.
const root = "../../../"

// source is a file by its path below the root.
type source string

// Path implements zip.File.
func (s source) Path() string { return string(s) }

// Lstat implements zip.File.
func (s source) Lstat() (os.FileInfo, error) { return os.Lstat(root + string(s)) }

// Open implements zip.File.
func (s source) Open() (io.ReadCloser, error) { return os.Open(root + string(s)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
