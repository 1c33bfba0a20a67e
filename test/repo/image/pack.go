package image

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// pack writes an OCI layout as an archive: the files in the order of their names and without a time, so that equal
// layouts make equal archives.
func pack(layout, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	archive := tar.NewWriter(buffered)
	err = filepath.WalkDir(layout, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(layout, path)
		if err != nil {
			return err
		}
		return packFile(archive, path, filepath.ToSlash(name))
	})
	return errors.Join(err, archive.Close(), buffered.Flush(), file.Close())
}

func packFile(archive *tar.Writer, path, name string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(),
		Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(archive, in)
	return err
}
