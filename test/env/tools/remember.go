package tools

import (
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
	record := filepath.Join(os.Getenv(RunVariable), key)
	shared := os.Getenv(RunVariable) != ""
	path, err := os.Readlink(record)
	if err == nil {
		_, err = os.Stat(path)
	}
	if !shared || err != nil {
		if path, err = find(); err != nil {
			return "", err
		}
	}
	if shared {
		_ = os.Symlink(path, record) // another process may have made it by now
	}
	asked.Store(key, path)
	return path, nil
}
