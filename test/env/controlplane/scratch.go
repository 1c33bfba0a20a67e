package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// removal waits until its standard input ends, which the kernel sees to when this process is gone, and removes
// the directory. It tries again while a server that is being killed still writes there.
const removal = `cat >/dev/null; for try in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$0" 2>/dev/null && exit; sleep 0.2; done`

// scratch is a temporary directory that vanishes with this process, even when that is killed.
type scratch struct {
	path    string
	remover *exec.Cmd
	hold    io.Closer
}

func newScratch(ctx context.Context, pattern string) (*scratch, error) {
	path, err := os.MkdirTemp("", pattern)
	if err != nil {
		return nil, err
	}
	// A session of its own keeps an interrupt from the terminal away.
	remover := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", removal, path)
	remover.Dir = "/"
	remover.SysProcAttr = ownSession()
	hold, err := remover.StdinPipe()
	if err == nil {
		err = remover.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch over %s: %w", path, err), os.RemoveAll(path))
	}
	return &scratch{path: path, remover: remover, hold: hold}, nil
}

// remove removes the directory now. It may be called more than once.
func (s *scratch) remove() error {
	if s.remover == nil {
		return nil
	}
	err := os.RemoveAll(s.path)
	_ = s.hold.Close()
	err = errors.Join(err, s.remover.Wait())
	s.remover = nil
	return err
}
