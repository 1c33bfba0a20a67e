// Package licenses finds the licenses of what the programs are made of. Five licenses cover all of it, so a few phrases
// identify them; what they do not identify is an error, and a person has to read it. The programs that recognize every
// license would bring more dependencies than the product has.
package licenses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Part is something that the programs contain: a Go module, or the standard library of Go, whose path is Standard.
type Part struct {
	Path, Version string
	// License is an SPDX expression such as "Apache-2.0 AND BSD-3-Clause".
	License string
	// Source is where the source code can be had.
	Source string
	// Texts are the files with licenses and notices, the one that License is read from first.
	Texts []Text
}

// Text is a file with a license or a notice.
type Text struct {
	// Name is its path below that of the part.
	Name    string
	Content string
}

// Standard is the path of Go's standard library.
const Standard = "stdlib"

// programs are the packages of the programs that are published; systems are what they are built for.
var (
	programs = []string{"./agent", "./controller", "./controller/kubectl-pnap"}
	systems  = []string{"linux", "darwin", "windows"}
)

// listed is what is read of a module that `go list` prints.
type listed struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listed
}

// Parts are the parts of all programs of the source tree at root, sorted by their paths.
func Parts(ctx context.Context, root string) ([]Part, error) {
	modules := map[string]listed{}
	for _, system := range systems {
		if err := list(ctx, root, system, modules); err != nil {
			return nil, err
		}
	}
	standard, err := library(ctx, root)
	if err != nil {
		return nil, err
	}
	parts := []Part{standard}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		part, err := partOf(modules[path])
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// list adds the modules that the programs contain on a system. The agent exists for Linux only.
func list(ctx context.Context, root, system string, to map[string]listed) error {
	of := programs
	if system != "linux" {
		of = programs[1:]
	}
	out, err := goCommand(ctx, root, append([]string{"GOOS=" + system, "CGO_ENABLED=0"}, os.Environ()...),
		append([]string{"list", "-deps", "-json=Module"}, of...)...)
	if err != nil {
		return err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct{ Module *listed }
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("modules of the programs: %w", err)
		}
		m := pkg.Module
		for m != nil && m.Replace != nil {
			m = m.Replace
		}
		if m != nil && !m.Main {
			to[m.Path] = *m
		}
	}
}

func goCommand(ctx context.Context, dir string, environment []string, args ...string) ([]byte, error) {
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = environment
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, complaint.String())
	}
	return out, nil
}

// library is the standard library of Go, with its runtime.
func library(ctx context.Context, root string) (Part, error) {
	out, err := goCommand(ctx, root, nil, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return Part{}, err
	}
	where, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	text, err := os.ReadFile(filepath.Join(where, "LICENSE"))
	if err != nil {
		return Part{}, fmt.Errorf("license of Go: %w", err)
	}
	part := Part{Path: Standard, Version: version, Source: "https://go.dev/dl/" + version + ".src.tar.gz",
		Texts: []Text{{"LICENSE", string(text)}}}
	part.License, err = identify(string(text))
	return part, err
}

func partOf(m listed) (Part, error) {
	var err error
	part := Part{Path: m.Path, Version: m.Version, Source: "https://pkg.go.dev/" + m.Path + "@" + m.Version}
	if part.Texts, err = texts(m.Dir); err != nil {
		return part, fmt.Errorf("license of %s: %w", m.Path, err)
	}
	if len(part.Texts) == 0 {
		return part, fmt.Errorf("%s@%s has no license", m.Path, m.Version)
	}
	if part.License, err = identify(part.Texts[0].Content); err != nil {
		return part, fmt.Errorf("license of %s@%s: %w", m.Path, m.Version, err)
	}
	return part, nil
}

// named are the files with licenses and notices, by the beginnings of their names.
var named = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|PATENTS|COPYRIGHT)([.-][\w.-]+)?$`)

// texts reads the licenses and notices below a directory: that of the module first, then those of code that it took
// from elsewhere.
func texts(dir string) ([]Text, error) {
	var found []Text
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !named.MatchString(e.Name()) || filepath.Ext(path) == ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		found = append(found, Text{filepath.ToSlash(name), string(content)})
		return err
	})
	slices.SortStableFunc(found, func(a, b Text) int { return rank(a.Name) - rank(b.Name) })
	return found, err
}

// rank puts licenses before notices, and what is in folders last.
func rank(name string) int {
	rank := 2 * strings.Count(name, "/")
	if name = strings.ToUpper(name); !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
		rank++
	}
	return rank
}

// phrases identify licenses. The end of one that allows use of a name distinguishes the two BSD licenses.
var phrases = []struct{ license, phrase, without string }{
	{"Apache-2.0", "apache license version 2.0", ""},
	{"Apache-2.0", "licensed under the apache license, version 2.0", ""},
	{"MPL-2.0", "mozilla public license version 2.0", ""},
	{"MPL-2.0", "mozilla public license, version 2.0", ""},
	{"MIT", "permission is hereby granted, free of charge", ""},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose", ""},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose", ""},
	{"BSD-3-Clause", "may be used to endorse or promote products", ""},
	{"BSD-2-Clause", "redistribution and use in source and binary forms", "may be used to endorse or promote products"},
}

// identify returns the SPDX expression of a text, which may hold several licenses for different files.
func identify(text string) (string, error) {
	plain := strings.Join(strings.Fields(strings.ToLower(text)), " ")
	var found []string
	for _, p := range phrases {
		if strings.Contains(plain, p.phrase) && (p.without == "" || !strings.Contains(plain, p.without)) &&
			!slices.Contains(found, p.license) {
			found = append(found, p.license)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("it is none that is known: read it, and add it to the phrases: %.200s", plain)
	}
	return strings.Join(found, " AND "), nil
}
