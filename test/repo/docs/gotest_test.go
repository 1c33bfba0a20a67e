package docs

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTestsOfThePagesRun: every go test that a page or the Makefile names runs a test: with the build tags given, and
// down to the subtest.
func TestTestsOfThePagesRun(t *testing.T) {
	found := snippets(t)
	for line := range strings.Lines(read(t, "Makefile")) {
		if command, ok := strings.CutPrefix(line, "\t"); ok && strings.Contains(command, "go test ./") ||
			strings.HasPrefix(command, "go test -tags") {
			command, _, _ = strings.Cut(strings.ReplaceAll(command, "$$", "$"), " | ")
			commands, err := shellCommands(command)
			must(t, err)
			for _, words := range commands {
				found = append(found, snippet{page: "Makefile", words: words})
			}
		}
	}
	tried := map[string]int{}
	for _, s := range found {
		if len(s.words) < 3 || s.words[0] != "go" || s.words[1] != "test" {
			continue
		}
		tried[s.page]++
		if problem := goTest(t, root, s.words[2:]); problem != "" {
			t.Errorf("%s: %s: %s", s.page, strings.Join(s.words, " "), problem)
		}
	}
	if tried["Makefile"] < 5 || len(tried) < 8 {
		t.Errorf("commands of only %d pages found: %v", len(tried), tried)
	}
}

// TestGoTest: what runs no test is found.
func TestGoTest(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"test/env/pace/pace.go": "package pace\nvar _ = flag.Bool(\"slow\", false, \"\")\n",
		"plain/plain_test.go": "package plain\nimport (\n\"testing\"\n\"example.test/p/test/env/pace\")\nvar _ = flag.Bool(\"update\", false, \"\")\n" +
			"func TestPlain(t *testing.T) { t.Run(\"of one kind\", nil); _ = \"of\" }\nfunc BenchmarkFast() {}\nfunc helper() {}\n",
		"plain/plain_windows_test.go": "package plain\nfunc TestWindows() {}\n",
		"tagged/tagged_test.go":       "//go:build linux && live\n\npackage tagged\nfunc TestTagged() {}\n",
		"below/deep/deep_test.go":     "package deep\nfunc FuzzDeep() {}\n",
		"empty/empty.go":              "package empty\nfunc TestNothing() {}\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
	}
	for command, want := range map[string]bool{
		"./plain":                         true,
		"./plain -run Plain -v":           true,
		"./plain -run=^TestPlain$ -v":     true,
		"./plain -run TestPlain/one":      true,
		"./plain -run TestPlain/of_one":   true,
		"./plain -run TestPlain/two":      false,
		"./plain -run TestPlain/^3$":      true,
		"./plain -run helper":             false,
		"./plain -run Windows":            false,
		"./plain -run Fast":               false,
		"./plain -run ^$ -bench Fast":     true,
		"./plain -bench Slow":             false,
		"./plain -update":                 true,
		"./plain -downgrade":              false,
		"./plain -of":                     false,
		"./plain -slow":                   true,
		"./plain -count 1 -timeout 4m":    true,
		"./tagged":                        false,
		"./tagged -run Tagged":            false,
		"-tags live ./tagged -run Tagged": true,
		"-tags=x,live ./tagged":           true,
		"-tags dead ./tagged":             false,
		"./below/...":                     true,
		"./below":                         false,
		"./empty":                         false,
		"./absent":                        false,
		"./plain ./tagged":                false,
		"./below/... -fuzz FuzzDeep":      true,
		"./below/... -fuzz FuzzHigh":      false,
	} {
		if problem := goTest(t, dir, strings.Fields(command)); (problem == "") != want {
			t.Errorf("go test %s: %q, want it to be accepted: %t", command, problem, want)
		}
	}
}

// goTest says why a go test command does not run what it names; empty when it does.
func goTest(t *testing.T, top string, args []string) string {
	t.Helper()
	packages, flags := goTestArguments(args)
	var all []string
	var functions, literals, known []string
	for _, pattern := range packages {
		tests := testsBelow(t, top, pattern, flags["tags"])
		if len(tests.functions) == 0 {
			return "there is no test in " + pattern + " with the tags " + strconv.Quote(flags["tags"])
		}
		all = append(all, pattern)
		functions = append(functions, tests.functions...)
		literals = append(literals, tests.literals...)
		known = append(known, tests.flags...)
		for _, folder := range tests.support {
			known = append(known, flagsIn(t, filepath.Join(top, folder))...)
		}
	}
	for name := range flags {
		if !slices.Contains(goTestFlags, name) && !slices.Contains(known, name) {
			return "neither go test nor a test has a flag -" + name
		}
	}
	for name, kind := range map[string]string{"run": "Test|Fuzz|Example", "bench": "Benchmark", "fuzz": "Fuzz"} {
		if pattern := flags[name]; pattern != "" && pattern != "^$" &&
			!runs(pattern, kind, functions, literals) {
			return "nothing in " + strings.Join(all, ", ") + " is chosen by -" + name + " " + pattern
		}
	}
	return ""
}

// goTestFlags are the flags of go test that pages use.
var goTestFlags = []string{"run", "bench", "fuzz", "tags", "count", "timeout", "v", "race", "short", "benchtime",
	"artifacts", "outputdir"}

// goTestArguments separates packages from flags. A flag that takes a value may have it behind "=" or as the next word.
func goTestArguments(args []string) (packages []string, flags map[string]string) {
	valued := []string{"run", "bench", "fuzz", "tags", "count", "timeout", "benchtime", "outputdir"}
	flags = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case !strings.HasPrefix(args[i], "-"):
			packages = append(packages, args[i])
		case !given && slices.Contains(valued, name) && i+1 < len(args):
			i++
			flags[name] = args[i]
		default:
			flags[name] = value
		}
	}
	return packages, flags
}

// runs reports whether a pattern of -run, -bench or -fuzz chooses a function of that kind. The parts for subtests must
// fit a text of the tests: names of subtests are written there, or made of a number.
func runs(pattern, kind string, functions, literals []string) bool {
	parts := strings.Split(pattern, "/")
	isKind := regexp.MustCompile("^(" + kind + ")")
	top := regexp.MustCompile(parts[0])
	if !slices.ContainsFunc(functions, func(f string) bool { return isKind.MatchString(f) && top.MatchString(f) }) {
		return false
	}
	for _, part := range parts[1:] {
		name := regexp.MustCompile(part)
		if !slices.ContainsFunc(append(strings.Split("0123456789", ""), literals...),
			func(l string) bool { return name.MatchString(strings.ReplaceAll(l, " ", "_")) }) {
			return false
		}
	}
	return true
}

// tests are the functions of tests, all texts in their files, the flags that they declare, and the folders of test/env
// that they import, which may declare others.
type tests struct{ functions, literals, flags, support []string }

// testsBelow reads the tests that go test finds on Linux by a pattern of packages, with build tags separated by commas.
func testsBelow(t *testing.T, top, pattern, tags string) (found tests) {
	t.Helper()
	dir, all := strings.CutSuffix(pattern, "/...")
	context := build.Default
	context.GOOS = "linux"
	context.BuildTags = strings.Split(tags, ",")
	start := filepath.Join(top, dir)
	if _, err := os.Stat(start); err != nil {
		return found
	}
	must(t, filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != start && (!all || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if match, err := context.MatchFile(filepath.Dir(path), entry.Name()); err != nil || !match {
			return err
		}
		found.read(t, path)
		return nil
	}))
	return found
}

func (found *tests) read(t *testing.T, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must(t, err)
	isTest := regexp.MustCompile(`^(Test|Fuzz|Example|Benchmark)(Main$)?`)
	found.flags = append(found.flags, flagsOf(file)...)
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		must(t, err)
		if _, folder, ok := strings.Cut(path, "/test/env/"); ok {
			found.support = append(found.support, "test/env/"+folder)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if name := isTest.FindStringSubmatch(n.Name.Name); n.Recv == nil && name != nil && name[2] == "" {
				found.functions = append(found.functions, n.Name.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				found.literals = append(found.literals, cmp.Or(text, " "))
			}
		}
		return true
	})
}

// flagsIn returns the flags that the files of a folder declare.
func flagsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		names = append(names, flagsOf(file)...)
	}
	return names
}

// flagsOf returns the flags that a file declares: the first texts among the arguments of flag.Bool, flag.StringVar and
// so on.
func flagsOf(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); !ok || !isFlagPackage(f.X) {
			return true
		}
		for _, argument := range call.Args {
			if text, ok := argument.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if name, err := strconv.Unquote(text.Value); err == nil {
					names = append(names, name)
				}
				break
			}
		}
		return true
	})
	return names
}

func isFlagPackage(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && (name.Name == "flag" || name.Name == "flags")
}
