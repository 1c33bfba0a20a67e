package figures

import (
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/words"
)

// Count is the line of a figure that is a whole number, as other commands of this repository print it, too.
func Count(name string, value int, unit string) string {
	return fmt.Sprintf("figure %s %d %s", name, value, unit)
}

func percent(name string, value float64) string {
	return fmt.Sprintf("figure %s %.2f %%", name, value)
}

// Print measures the repository at root and writes one figure a line.
func Print(out io.Writer, root string) error {
	for _, measure := range []func(string) ([]string, error){
		sizes, roomFigures, functionFigures, seamFigures, walkFigures, textFigures, pageFigures,
	} {
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

// productFiles are the Go files that the programs are built from, without those that a program wrote.
func productFiles(root string) ([]file, error) {
	files, err := goFiles(root, product...)
	return slices.DeleteFunc(files, func(f file) bool { return f.isTest() || f.isGenerated() }), err
}

func sizes(root string) ([]string, error) {
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
	return []string{
		Count("product_lines", lines, "lines"),
		Count("product_packages", len(packages), "packages"),
		Count("test_support_lines", supportLines, "lines"),
	}, err
}

func roomFigures(root string) ([]string, error) {
	var figures []string
	for _, folder := range []string{"agent", "controller", "test"} {
		found, err := rooms(root, folder)
		if err != nil {
			return nil, err
		}
		figures = append(figures, Count(folder+"_rooms", found, "rooms"))
	}
	return figures, nil
}

func functionFigures(root string) ([]string, error) {
	shipped, err := productFiles(root)
	if err != nil {
		return nil, err
	}
	sorted, err := functions(shipped)
	if err != nil {
		return nil, err
	}
	docs, err := documented(shipped)
	return []string{
		Count("function_lines_median", percentile(sorted, 0.5).lines, "lines"),
		Count("function_lines_p95", percentile(sorted, 0.95).lines, "lines"),
		Count("function_lines_max", percentile(sorted, 1).lines, "lines"),
		percent("exported_documented_percent", docs.percent()),
	}, err
}

func textFigures(root string) ([]string, error) {
	found, err := words.Find(root)
	if err != nil {
		return nil, err
	}
	files, err := goFiles(root, everything...)
	long, all := longLines(files)
	return []string{
		Count("forbidden_words", len(found), "words"),
		percent("long_lines_percent", 100*float64(long)/float64(max(all, 1))),
	}, err
}
