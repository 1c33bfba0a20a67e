package reference

import (
	"fmt"
	"os"
	"path/filepath"
)

// Pages returns the pages of a directory that hold tables as they should be, by their paths.
func Pages(directory string, tables map[string]string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages of %s: %w", directory, err)
	}
	pages := map[string]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		if len(Regions(string(raw))) == 0 {
			continue
		}
		if pages[path], err = Fill(string(raw), tables); err != nil {
			return nil, fmt.Errorf("fill %s: %w", path, err)
		}
	}
	return pages, nil
}
