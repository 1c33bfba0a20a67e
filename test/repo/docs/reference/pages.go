package reference

import (
	"fmt"
	"os"
	"path/filepath"
)

// Pages returns the pages below the directory docs of the project that hold tables, as they should be, by their paths.
func Pages(root string, tables map[string]string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
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
