package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// RunVariable is the environment variable that names a directory of one run of many test programs, during which no
// source changes: what one of them has found, the others find there.
const RunVariable = "PNAP_RUN"

// asked has the paths of what this process has asked for.
var asked sync.Map

// remembered calls find once in a process, and once in a run. To ask the go command whether a program is up to date,
// or apt-get for a package, takes a second of computing, and a test may start a program a hundred times.
func (b *Toolbox) remembered(name string, find func() (string, error)) (string, error) {
	key := keyOf(b.Root, b.Cache, name, os.Getenv(MinorVariable), os.Getenv(assetsVariable), os.Getenv(kubeVIPVariable),
		os.Getenv("GOFLAGS"))
	known, _ := asked.Load(key)
	if path, ok := known.(string); ok {
		return path, nil
	}
	path, err := foundInRun(os.Getenv(RunVariable), key, find)
	if err != nil {
		return "", err
	}
	asked.Store(key, path)
	return path, nil
}

// foundInRun reads from the directory of a run what a process of the run has found, or finds it and notes it there.
// Without a directory it finds it.
func foundInRun(dir, key string, find func() (string, error)) (string, error) {
	if dir == "" {
		return find()
	}
	const remedy = "set it to an existing directory by its absolute path, or unset it"
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s=%s is a relative path: %s", RunVariable, dir, remedy)
	}
	record := filepath.Join(dir, key)
	path, err := os.Readlink(record)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err == nil {
		return path, nil
	}
	if path, err = find(); err != nil {
		return "", err
	}
	// Another process may have noted it by now.
	if err := os.Symlink(path, record); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s=%s cannot be written (%w): %s", RunVariable, dir, err, remedy)
	}
	return path, nil
}
