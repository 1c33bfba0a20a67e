package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// productAge is how long an unused build of our own is kept.
const productAge = 7 * 24 * time.Hour

// Product builds a program of this project, such as ./agent, as a static binary. The Go build cache decides
// what has to be compiled. The path is named after the content: a program that runs from it is never
// overwritten by a later build.
func (b *Toolbox) Product(ctx context.Context, pkg string) (string, error) {
	name := filepath.Base(filepath.Clean(pkg))
	if !strings.HasPrefix(pkg, "./") || name == "." {
		return "", fmt.Errorf("build %q: want a package of this project, such as ./agent", pkg)
	}
	// The go command relinks only when the file it would write is out of date, so each source tree keeps one.
	key := keyOf(b.Root, pkg)
	linked := filepath.Join(b.Cache, "linked", key, name)
	release, err := b.lock(ctx, name+"-"+key)
	if err != nil {
		return "", err
	}
	defer release()
	if err := b.goBuild(ctx, b.Root, pkg, linked, "-s -w", ""); err != nil {
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
	if err := replaceFile(path, func(temporary string) error { return copyProgram(linked, temporary) }); err != nil {
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
