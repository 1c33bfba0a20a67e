package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Snapshot is the state of a control plane at a moment.
type Snapshot struct{ dir string }

// Snapshot copies the data of etcd, which stands still meanwhile, as where a disk is saved: clients wait for the
// fraction of a second that it takes.
func (c *ControlPlane) Snapshot() (_ Snapshot, err error) {
	s := Snapshot{dir: filepath.Join(c.dir.path, fmt.Sprint("snapshot-", c.snapshots))}
	c.snapshots++
	thaw, err := c.etcd.freeze()
	if err != nil {
		return s, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	err = errors.Join(os.CopyFS(s.dir, os.DirFS(filepath.Join(c.dir.path, etcdData))), thaw())
	if err != nil {
		return s, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	return s, nil
}

// freeze stops a server between two instructions until thaw is called.
func (s *server) freeze() (thaw func() error, err error) {
	pid := s.process.PID()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return nil, err
	}
	thaw = func() error { return unix.Kill(pid, unix.SIGCONT) }
	// The signal takes effect on each thread in its own time; the parent learns when all stand still.
	for {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait until %s stands still: %w", s.name, err), thaw())
	}
	return thaw, nil
}

// Kill ends the API server and etcd at once, until Restore.
func (c *ControlPlane) Kill() error {
	return errors.Join(c.apiServer.process.Kill(), c.etcd.process.Kill())
}

// Restore ends the API server and etcd, gives etcd the data of the snapshot, and starts both again, in the order of the
// Kubernetes documentation. They are killed: what etcd holds is lost anyway, and an API server with clients takes up to
// a minute to end. Revisions go back too, unlike with the option --bump-revision of etcdutl: a client that has seen a
// newer one misses changes until it starts again.
func (c *ControlPlane) Restore(ctx context.Context, s Snapshot) error {
	if err := c.restore(ctx, s); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	return nil
}

func (c *ControlPlane) restore(ctx context.Context, s Snapshot) error {
	if err := c.Kill(); err != nil {
		return err
	}
	data := filepath.Join(c.dir.path, etcdData)
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.CopyFS(data, os.DirFS(s.dir)); err != nil {
		return err
	}
	if err := c.startServers(ctx); err != nil {
		return err
	}
	return c.waitReady(ctx)
}
