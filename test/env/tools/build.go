package tools

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// Binary returns the path of a program of Names. It is built on first use and kept under a name that changes
// with its sources and the Go toolchain. $KUBEBUILDER_ASSETS replaces etcd, kube-apiserver, kubectl and, if it
// holds one, kube-proxy; $KUBE_VIP_BINARY replaces kube-vip. $PNAP_KUBERNETES_MINOR chooses another control plane
// than the newest of Minors, and an older one is always built.
func (b *Toolbox) Binary(ctx context.Context, name string) (string, error) {
	name, err := ofMinor(name, os.Getenv(MinorVariable))
	if err != nil {
		return "", err
	}
	if path, err := replacement(name, os.Getenv); path != "" || err != nil {
		return path, err
	}
	s, err := specOf(name)
	if err != nil {
		return "", err
	}
	toolchain, err := goToolchain(ctx, filepath.Join(b.Root, s.dir))
	if err != nil {
		return "", err
	}
	r, err := recipeFor(b.Root, name, toolchain)
	if err != nil {
		return "", err
	}
	return b.build(ctx, r)
}

// replacement is the program that the environment names instead of the built one, or "".
func replacement(name string, getenv func(string) string) (string, error) {
	if strings.HasPrefix(name, kubeVIPPrefix) {
		return existing(kubeVIPVariable, getenv(kubeVIPVariable))
	}
	a := specs[name].asset
	assets := getenv(assetsVariable)
	if assets == "" || a == notAsset {
		return "", nil
	}
	path, err := existing(assetsVariable, filepath.Join(assets, name))
	if a == mayBeAsset && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path, err
}

// existing returns the absolute path of a program that variable led to.
func existing(variable, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s is set, but %s is not there (correct it or unset it): %w", variable, path, err)
	}
	if info.IsDir() || info.Mode().Perm()&0o111 == 0 {
		return "", fmt.Errorf("%s is set, but %s is no executable file: correct it or unset it", variable, path)
	}
	return filepath.Abs(path)
}

// build makes the program of a recipe unless the cache holds it.
func (b *Toolbox) build(ctx context.Context, r recipe) (string, error) {
	dir := filepath.Join(b.Cache, "tools")
	path := filepath.Join(dir, r.name+"-"+r.key)
	if isFile(path) {
		return path, nil
	}
	release, err := b.lock(ctx, filepath.Base(path))
	if err != nil {
		return "", err
	}
	defer release()
	if isFile(path) {
		return path, nil
	}
	b.say("building %s (about %s the first time)", r.title(), minutes(r.minutes))
	err = ReplaceFile(path, func(temporary string) error {
		return b.goBuild(ctx, filepath.Join(b.Root, r.dir), temporary, r.spec, r.flags)
	})
	if err != nil {
		return "", fmt.Errorf("build %s: %w", r.title(), err)
	}
	return path, nil
}

// ReplaceFile has fill write a temporary file beside path and renames it to path in one step; when fill fails,
// nothing is left.
func ReplaceFile(path string, fill func(temporary string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	temporary := filepath.Join(dir, filepath.Base(path))
	if err := fill(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// goBuild builds a static program from the module in dir. The output of go build becomes the error's text.
func (b *Toolbox) goBuild(ctx context.Context, dir, out string, s spec, ldflags string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	command := []string{"build"}
	if s.tests {
		command = []string{"test", "-c", "-vet=off"} // vet would take longer than the compiler
	}
	args := slices.Concat(command, []string{"-buildvcs=false", "-o", out}, buildFlags(ldflags, s.tags), []string{s.pkg})
	if s.cgo {
		if err := b.Packages(ctx, "gcc"); err != nil {
			return err
		}
		_, err := runGoWith(ctx, dir, []string{"CGO_ENABLED=1"}, args...)
		return err
	}
	_, err := runGo(ctx, dir, args...)
	return err
}

// SourceFile returns the path of a file in the module of a program of Binary, in the version that is pinned.
func (b *Toolbox) SourceFile(ctx context.Context, name, file string) (string, error) {
	s, err := specOf(name)
	if err != nil {
		return "", err
	}
	out, err := runGo(ctx, filepath.Join(b.Root, s.dir), "mod", "download", "-json", s.module)
	if err != nil {
		return "", fmt.Errorf("source of %s: %w", name, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		return "", fmt.Errorf("source of %s: %w", name, err)
	}
	return filepath.Join(module.Dir, file), nil
}

// goToolchain is what decides about the code that the go command makes in dir, besides the flags of every build.
func goToolchain(ctx context.Context, dir string) (string, error) {
	out, err := runGo(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOFLAGS", "GOEXPERIMENT")
	return strings.NewReplacer(" "+trimPath, "", trimPath, "").Replace(out), err
}

// runGo runs the go command in dir, without cgo, and returns its standard output.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	return runGoWith(ctx, dir, []string{"CGO_ENABLED=0"}, args...)
}

func runGoWith(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	program, err := exec.LookPath("go")
	if err != nil {
		return "",
			errors.New("no Go in PATH: install Go 1.26 or later from https://go.dev/dl and add its bin directory to " +
				"PATH")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	// A workspace would replace the pinned versions of the nested modules.
	cmd.Env = slices.Concat(os.Environ(), env, []string{"GOWORK=off", "PWD=" + dir})
	if err := subprocess.Run(cmd); err != nil {
		// Why the context ended says more than "signal: interrupt".
		return "", fmt.Errorf("go %s in %s: %w: %s", args[0], dir, cmp.Or(context.Cause(ctx), err),
			remedy(stderr.String()))
	}
	return stdout.String(), nil
}

// remedy adds to the last lines of the go command's complaint what helps in the cases that depend on the machine.
func remedy(stderr string) string {
	text := lastLines(stderr, 10)
	switch {
	case strings.Contains(text, "no space left on device"):
		return text + " (free some space: a first build of all tools takes about 5 GB in the Go build cache)"
	case strings.Contains(text, "signal: killed"), strings.Contains(text, "cannot allocate memory"):
		return text + " (not enough memory: a linker takes up to 2 GB; run with GOMAXPROCS=1 or add memory)"
	case strings.Contains(text, "dial tcp"), strings.Contains(text, "no such host"):
		return text + " (the module proxy cannot be reached: connect to the network or set GOPROXY)"
	default:
		return text
	}
}

// lastLines returns at most n lines from the end of text, joined into one.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

func minutes(n int) string {
	if n == 1 {
		return "1 minute"
	}
	return fmt.Sprintf("%d minutes", n)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// productAge is how long an unused build of our own is kept.
const productAge = 7 * 24 * time.Hour

// Product builds a program of this project, such as ./agent, as a static binary, with build tags. The Go build cache
// decides what has to be compiled. The path is named after the content: a program that runs from it is never
// overwritten by a later build.
func (b *Toolbox) Product(ctx context.Context, pkg string, tags ...string) (string, error) {
	name := filepath.Base(filepath.Clean(pkg))
	if !strings.HasPrefix(pkg, "./") || name == "." {
		return "", fmt.Errorf("build %q: want a package of this project, such as ./agent", pkg)
	}
	// The go command relinks only when the file it would write is out of date, so each source tree keeps one.
	key := keyOf(append([]string{b.Root, pkg}, tags...)...)
	linked := filepath.Join(b.Cache, "linked", key, name)
	release, err := b.lock(ctx, name+"-"+key)
	if err != nil {
		return "", err
	}
	defer release()
	if err := b.goBuild(ctx, b.Root, linked, spec{pkg: pkg, tags: strings.Join(tags, ",")}, "-s -w"); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	return b.publish(linked, name)
}

// publish copies a linked program to a path that its content decides.
func (b *Toolbox) publish(linked, name string) (string, error) {
	sum, err := sumOf(linked)
	if err != nil {
		return "", fmt.Errorf("publish %s: %w", name, err)
	}
	// The program keeps its own name, because it may print it.
	path := filepath.Join(b.Cache, "products", name+"-"+sum, name)
	if isFile(path) {
		now := time.Now()
		if err := os.Chtimes(filepath.Dir(path), now, now); err != nil {
			return "", fmt.Errorf("mark %s as used: %w", path, err)
		}
		return path, nil
	}
	if err := ReplaceFile(path, func(temporary string) error { return copyProgram(linked, temporary) }); err != nil {
		return "", fmt.Errorf("publish %s: %w", name, err)
	}
	b.forget(name, time.Now().Add(-productAge))
	return path, nil
}

// forget removes the builds of a program that were last asked for before a time. What cannot be removed now is
// removed another time.
func (b *Toolbox) forget(name string, before time.Time) {
	builds, err := filepath.Glob(filepath.Join(b.Cache, "products", name+"-????????????????"))
	if err != nil {
		return
	}
	for _, dir := range builds {
		if info, err := os.Stat(dir); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(dir)
		}
	}
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// copyProgram holds the lock that forks wait for: a child forked meanwhile would keep the file open for writing,
// and running the program could then fail with ETXTBSY.
func copyProgram(from, to string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
