package pages

import (
	"fmt"
	"os"
	"path/filepath"
)

// Write updates the pages of a directory, and deletes pages of findings that no longer exist.
func Write(directory string, pages map[string]string) error {
	stale, err := Differences(directory, pages)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(directory, Directory), 0o755); err != nil {
		return fmt.Errorf("write the pages: %w", err)
	}
	for _, name := range stale {
		path := filepath.Join(directory, filepath.FromSlash(name))
		content, wanted := pages[name]
		if !wanted {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the pages: %w", err)
		}
	}
	return nil
}

// Differences names the pages of a directory that are not up to date.
func Differences(directory string, pages map[string]string) ([]string, error) {
	var names []string
	for name, content := range pages {
		raw, err := os.ReadFile(filepath.Join(directory, filepath.FromSlash(name)))
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("read the pages: %w", err)
		}
		if err != nil || string(raw) != content {
			names = append(names, name)
		}
	}
	present, err := filepath.Glob(filepath.Join(directory, Directory, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
	}
	for _, path := range present {
		name := Directory + "/" + filepath.Base(path)
		if _, wanted := pages[name]; !wanted {
			names = append(names, name)
		}
	}
	return names, nil
}
