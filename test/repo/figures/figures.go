package figures

import (
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/repo/words"
)

// Figure is one measured value.
type Figure struct {
	Name  string
	Value float64
	Unit  string
	// digits are those behind the point.
	digits int
}

// String writes the line that other commands of this repository print, too.
func (f Figure) String() string {
	return fmt.Sprintf("figure %s %.*f %s", f.Name, f.digits, f.Value, f.Unit)
}

// Count is a figure that is a whole number.
func Count(name string, value int, unit string) Figure {
	return Figure{Name: name, Value: float64(value), Unit: unit}
}

func percent(name string, value float64) Figure {
	return Figure{Name: name, Value: value, Unit: "%", digits: 2}
}

// Print measures the repository at root and writes one figure a line.
func Print(out io.Writer, root string) error {
	for _, measure := range []func(string) ([]Figure, error){sizes, roomFigures, functionFigures, textFigures} {
		figures, err := measure(root)
		if err != nil {
			return err
		}
		for _, f := range figures {
			fmt.Fprintln(out, f)
		}
	}
	return nil
}

// productFiles are the Go files that the programs are built from.
func productFiles(root string) ([]file, error) {
	files, err := goFiles(root, product...)
	return slices.DeleteFunc(files, file.isTest), err
}

func sizes(root string) ([]Figure, error) {
	shipped, err := productFiles(root)
	if err != nil {
		return nil, err
	}
	lines := 0
	packages := map[string]bool{}
	for _, f := range shipped {
		lines += f.lines()
		packages[path.Dir(f.path)] = true
	}
	support, err := goFiles(root, "test")
	supportLines := 0
	for _, f := range slices.DeleteFunc(support, file.isTest) {
		supportLines += f.lines()
	}
	return []Figure{
		Count("product_lines", lines, "lines"),
		Count("product_packages", len(packages), "packages"),
		Count("test_support_lines", supportLines, "lines"),
	}, err
}

func roomFigures(root string) ([]Figure, error) {
	var figures []Figure
	for _, folder := range []string{"agent", "controller", "test"} {
		found, err := rooms(root, folder)
		if err != nil {
			return nil, err
		}
		figures = append(figures, Count(folder+"_rooms", found, "rooms"))
	}
	return figures, nil
}

func functionFigures(root string) ([]Figure, error) {
	shipped, err := productFiles(root)
	if err != nil {
		return nil, err
	}
	sorted, err := functions(shipped)
	if err != nil {
		return nil, err
	}
	docs, err := documented(shipped)
	return []Figure{
		Count("function_lines_median", percentile(sorted, 0.5).lines, "lines"),
		Count("function_lines_p95", percentile(sorted, 0.95).lines, "lines"),
		Count("function_lines_max", percentile(sorted, 1).lines, "lines"),
		percent("exported_documented_percent", docs.percent()),
	}, err
}

func textFigures(root string) ([]Figure, error) {
	found, err := words.Find(root)
	if err != nil {
		return nil, err
	}
	files, err := goFiles(root, everything...)
	long, all := longLines(files)
	return []Figure{
		Count("forbidden_words", len(found), "words"),
		percent("long_lines_percent", 100*float64(long)/float64(max(all, 1))),
	}, err
}
