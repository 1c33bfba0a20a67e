package tools

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// apt is one view of the Debian archive.
type apt struct {
	// lists is a directory for package lists of our own, which need no root; "" means the machine's.
	lists string
	// sources is a file that replaces the sources the machine is configured with; "" means those.
	sources string
}

// DebianPackage downloads a Debian package for this machine's architecture and unpacks it below the cache,
// without installing it and without root. It returns the directory that stands for "/". A package that was
// unpacked before is taken from the cache as long as the package lists name the same file.
func (b *Toolbox) DebianPackage(ctx context.Context, name string) (string, error) {
	var dir string
	err := b.ask(ctx, func(a apt) error {
		file, err := a.fileName(ctx, name)
		if err != nil {
			return err
		}
		dir, err = b.unpacked(ctx, a, name, file)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("get the Debian package %s: %w", name, err)
	}
	return dir, nil
}

// DebianDependency returns the package that name depends on and whose own name begins with prefix: so
// linux-image-cloud-amd64 leads to the kernel of today, linux-image-<version>-cloud-amd64.
func (b *Toolbox) DebianDependency(ctx context.Context, name, prefix string) (string, error) {
	var dependency string
	err := b.ask(ctx, func(a apt) error {
		text, err := output(ctx, "", a.command("apt-cache", "show", "--no-all-versions", name)...)
		if err != nil {
			return err
		}
		dependency, err = dependencyIn(text, prefix)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find the package behind the Debian package %s: %w", name, err)
	}
	return dependency, nil
}

// dependencyIn finds in the control fields of a package the dependency that begins with prefix (Debian policy
// manual 7.1: relations are separated by commas, alternatives by bars, versions stand in parentheses).
func dependencyIn(control, prefix string) (string, error) {
	for line := range strings.Lines(control) {
		relations, isDepends := strings.CutPrefix(line, "Depends:")
		if !isDepends {
			continue
		}
		for _, relation := range strings.FieldsFunc(relations, func(r rune) bool { return r == ',' || r == '|' }) {
			name, _, _ := strings.Cut(strings.TrimSpace(relation), " ")
			if strings.HasPrefix(name, prefix) {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("it depends on no package that begins with %s", prefix)
}

// ask tries the machine's package lists first, which need no network, then lists of our own, then these after
// an update. The first view that answers wins.
func (b *Toolbox) ask(ctx context.Context, question func(apt) error) error {
	if !found("apt-get") {
		return errors.New("there is no apt-get here: run this on Debian or a system derived from it")
	}
	machineErr := question(apt{sources: b.aptSources})
	if machineErr == nil || ctx.Err() != nil {
		return machineErr
	}
	release, err := b.lock(ctx, "debian-lists")
	if err != nil {
		return err
	}
	defer release()
	own := apt{lists: filepath.Join(b.Cache, "debian", "apt"), sources: b.aptSources}
	if question(own) == nil {
		return nil
	}
	b.say("fetching Debian's package lists")
	if err := own.update(ctx); err != nil {
		return errors.Join(machineErr, err)
	}
	return question(own)
}

// update fetches package lists of our own.
func (a apt) update(ctx context.Context) error {
	for _, dir := range []string{"lists", "cache"} {
		if err := os.MkdirAll(filepath.Join(a.lists, dir, "partial"), 0o755); err != nil {
			return err
		}
	}
	_, err := output(ctx, "", a.command("apt-get", "-q", "update")...)
	return err
}

// command is the argument vector of an apt program with the options of this view.
func (a apt) command(program string, args ...string) []string {
	// The user _apt, to which apt-get drops its rights, cannot write below a home directory.
	argv := []string{program, "-o", "APT::Sandbox::User="}
	if a.lists != "" {
		argv = append(argv, "-o", "Dir::State::lists="+filepath.Join(a.lists, "lists"), "-o",
			"Dir::Cache="+filepath.Join(a.lists, "cache"))
	}
	if a.sources != "" {
		argv = append(argv, "-o", "Dir::Etc::sourcelist="+a.sources, "-o", "Dir::Etc::sourceparts=/dev/null")
	}
	return append(argv, args...)
}

// fileName is the name of the package's file, which carries its version; it becomes the name in the cache.
func (a apt) fileName(ctx context.Context, name string) (string, error) {
	text, err := output(ctx, "", a.command("apt-get", "download", "--print-uris", name)...)
	if err != nil {
		return "", err
	}
	return fileIn(text)
}

// fileIn reads the answer of apt-get --print-uris: 'location' file-name size hash.
func fileIn(uris string) (string, error) {
	fields := strings.Fields(uris)
	if len(fields) < 2 || !strings.HasSuffix(fields[1], ".deb") {
		return "", fmt.Errorf("apt-get names no file: %q", uris)
	}
	return filepath.Base(fields[1]), nil
}

// unpacked returns the directory of an unpacked package, downloading it when the cache does not hold it.
func (b *Toolbox) unpacked(ctx context.Context, a apt, name, file string) (string, error) {
	dir := filepath.Join(b.Cache, "debian", strings.TrimSuffix(unescaped(file), ".deb"))
	if isDir(dir) {
		return dir, nil
	}
	release, err := b.lock(ctx, "debian-"+filepath.Base(dir))
	if err != nil {
		return "", err
	}
	defer release()
	if isDir(dir) {
		return dir, nil
	}
	b.say("downloading the Debian package %s", filepath.Base(dir))
	return dir, ReplaceFile(dir, func(temporary string) error { return a.unpackInto(ctx, name, temporary) })
}

// unpackInto downloads beside root, so that the archive goes with the temporary directory, and unpacks into root.
func (a apt) unpackInto(ctx context.Context, name, root string) error {
	workDir := filepath.Dir(root)
	if _, err := output(ctx, workDir, a.command("apt-get", "-q", "download", name)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(workDir, "*.deb"))
	if err != nil {
		return err
	}
	if len(archives) != 1 {
		return fmt.Errorf("apt-get downloaded %d files, want one", len(archives))
	}
	_, err = output(ctx, workDir, "dpkg-deb", "--extract", archives[0], root)
	return err
}

// unescaped undoes what apt does to the colon of an epoch in a file name.
func unescaped(file string) string {
	if name, err := url.PathUnescape(file); err == nil {
		return strings.ReplaceAll(name, string(filepath.Separator), "_")
	}
	return file
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
