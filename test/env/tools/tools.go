// Package tools provides the programs that tests and the demo run, built from pinned sources or installed, and
// kept in a cache outside the source tree.
package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// modulePath is the module of this project; its go.mod marks the root of the source tree.
const modulePath = "github.com/phoenixnap/k8s-cloud-provider-bmc/v2"

// CacheVariable is the environment variable that names another cache directory than
// <user cache directory>/phoenixnap-cloud-provider.
const CacheVariable = "PNAP_CACHE"

// MinorVariable is the environment variable that chooses one of Minors, such as 1.35; empty means the newest.
const MinorVariable = "PNAP_KUBERNETES_MINOR"

// Toolbox knows where the sources are, where results are kept and where slow steps are reported.
type Toolbox struct {
	// Root is the root of the source tree: the directory of the project's go.mod.
	Root string
	// Cache is the directory that holds everything built or downloaded. Deleting it is always safe.
	Cache string
	// Progress receives a line before every step that takes long or changes the machine.
	Progress io.Writer

	// aptSources replaces the machine's sources of Debian packages in tests.
	aptSources string
}

// Default is the toolbox of the source tree around the working directory, with the user's cache, reporting to
// standard error.
func Default() (*Toolbox, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Toolbox{Root: root, Cache: cache, Progress: os.Stderr}, nil
}

// inDefault calls a method of the default toolbox.
func inDefault(call func(*Toolbox) (string, error)) (string, error) {
	box, err := Default()
	if err != nil {
		return "", err
	}
	return call(box)
}

// Binary is Toolbox.Binary of the default toolbox, remembered by this process.
func Binary(ctx context.Context, name string) (string, error) {
	return inDefault(func(b *Toolbox) (string, error) {
		return b.remembered(name, func() (string, error) { return b.Binary(ctx, name) })
	})
}

// Product is Toolbox.Product of the default toolbox without build tags, remembered by this process.
func Product(ctx context.Context, pkg string) (string, error) { return TaggedProduct(ctx, pkg) }

// TaggedProduct is Toolbox.Product of the default toolbox, remembered by this process.
func TaggedProduct(ctx context.Context, pkg string, tags ...string) (string, error) {
	return inDefault(func(b *Toolbox) (string, error) {
		name := strings.Join(append([]string{pkg}, tags...), " ")
		return b.remembered(name, func() (string, error) { return b.Product(ctx, pkg, tags...) })
	})
}

// DebianPackage is Toolbox.DebianPackage of the default toolbox, remembered by this process.
func DebianPackage(ctx context.Context, name string) (string, error) {
	return inDefault(func(b *Toolbox) (string, error) {
		return b.remembered("package "+name, func() (string, error) { return b.DebianPackage(ctx, name) })
	})
}

// SourceFile is Toolbox.SourceFile of the default toolbox.
func SourceFile(ctx context.Context, name, file string) (string, error) {
	return inDefault(func(b *Toolbox) (string, error) { return b.SourceFile(ctx, name, file) })
}

// Packages is Toolbox.Packages of the default toolbox.
func Packages(ctx context.Context, programs ...string) error {
	_, err := inDefault(func(b *Toolbox) (string, error) { return "", b.Packages(ctx, programs...) })
	return err
}

// CacheDir is the directory that $PNAP_CACHE names, else phoenixnap-cloud-provider in the user's cache
// directory (os.UserCacheDir). It need not exist yet.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set %s to name one): %w", CacheVariable, err)
	}
	return filepath.Join(dir, "phoenixnap-cloud-provider"), nil
}

// ModuleRoot is the root of the source tree that the working directory lies in. Go runs the tests of a package
// in its directory, so every test finds it.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	return moduleRootAbove(start)
}

// moduleRootAbove climbs from start until a go.mod names this project; nested modules are passed by.
func moduleRootAbove(start string) (string, error) {
	for dir := start; ; dir = filepath.Dir(dir) {
		name, err := moduleName(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the source tree: %w", err)
		}
		if name == modulePath {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is outside the source tree of %s: run this inside a clone of it", start,
				modulePath)
		}
	}
}

// moduleName reads the module directive of a go.mod.
func moduleName(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	_, directive, _ := strings.Cut("\n"+string(content), "\nmodule ")
	name, _, _ := strings.Cut(directive, "\n")
	return strings.TrimSpace(name), nil
}

// say writes one line of progress. A lost line is not a failure.
func (b *Toolbox) say(format string, args ...any) {
	if b.Progress != nil {
		_, _ = fmt.Fprintf(b.Progress, format+"\n", args...)
	}
}
