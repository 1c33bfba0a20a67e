package figures

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// minLimit is the shortest time after which a test may fail because something has not happened yet. A machine that does
// other things, too, may starve a process for seconds.
const minLimit = 20 * time.Second

// allowedLimits are shorter times that stay, by the reason: file, function and expression.
var allowedLimits = map[string][]string{
	"the server ends with it, at whatever point it is": {
		"agent/report/metricsserver/server_test.go TestServerEndsWithItsContext 100*time.Millisecond",
	},
	"nothing answers: the request ends with it": {
		"controller/cloud/pnap/errors_test.go TestAnAnswerThatNeverComes 50*time.Millisecond",
	},
	"as long at least an answer is on its way": {
		"controller/deposed_test.go renewedAfter 200*time.Millisecond",
	},
	"nothing happens in this time": {
		"controller/loadbalancer/service/account_test.go TestARefusalBacksOffThoughTheServiceIsWrittenOn 3*time.Second",
		"test/scenario/agent/network_test.go rests 2*time.Second",
		"test/scenario/faults/cmd/await/main_test.go TestAwait 3*every",
	},
	"nothing answers: requests end with it": {
		"controller/node/instances/lifecycle_test.go TestTwoMinutesOfFailureDeleteNoNode 300 * time.Millisecond",
	},
	"the machine ends with it": {
		"test/env/kernel/machine/machine_test.go TestTimeLimitAndCancellationSwitchTheMachineOff 2*time.Second",
	},
	"nothing arrives in this time": {
		"test/env/kernel/vlan/vlan_test.go TestFramesCrossTheBridgeOnlyOnAnOpenVLAN time.Second",
		"test/scenario/agent/announcer_test.go TestResponder pause",
	},
	"the program ends with it": {
		"test/env/lab/lab_test.go TestProgramsRunAndEndOnRequest time.Second",
	},
	"one attempt of many": {
		"test/env/lab/lab_test.go TestKilledServerIsGoneAndComesBackEmpty time.Second",
		"test/scenario/agent/announcer_test.go TestResponder time.Second",
		"test/scenario/returnpath/harness_test.go fetch 10 * attempt",
		"test/scenario/networks/harness_test.go ask patience",
		"test/scenario/services/address_test.go checkLoadBalancerIP refusal",
		"test/scenario/services/client_test.go answeredBy patience",
		"test/scenario/services/client_test.go answeredWithin patience",
	},
	"kubectl --watch ends with it": {
		"test/repo/docs/kubectl_test.go try time.Second",
	},
	"what comes later does no harm": {
		"test/scenario/agent/announcer_test.go drain 300*time.Millisecond",
	},
	"nothing answers in this time": {
		"test/scenario/agent/announcer_test.go TestResponder 500*time.Millisecond",
		"test/scenario/agent/announcer_test.go TestResponderInAFlood time.Second",
		"test/scenario/ebpf/ebpf_test.go TestReplies attempt",
		"test/scenario/returnpath/returnpath_test.go ask attempt",
		"test/scenario/services/client_test.go refused refusal",
		"test/scenario/services/sharing_test.go isClosed refusal",
	},
	"a client's attempt: how many fail is a figure of make e2e": {
		"test/scenario/e2e/install_test.go serve patience",
	},
	"a client's attempt: how many fail is a figure of make services": {
		"test/scenario/services/client_test.go watching patience",
	},
}

// TestLimitsAreLong finds times in tests after which they fail. Tests in virtual time may have any.
func TestLimitsAreLong(t *testing.T) {
	files, err := goFiles(root, everything...)
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for _, keys := range allowedLimits {
		for _, key := range keys {
			unused[key] = true
		}
	}
	for _, found := range shortLimits(t, files) {
		key := found.file + " " + found.in + " " + found.text
		if _, allowed := unused[key]; allowed {
			unused[key] = false
		} else {
			t.Errorf("%s:%d: %s is a limit below %s: a test waits at least that long, and only make faults claims less",
				found.file, found.line, found.text, minLimit)
		}
	}
	for key, without := range unused {
		if without {
			t.Errorf("%s is an exception without a use", key)
		}
	}
}

// TestClaimsAreHeld: make faults judges every claim of how soon something happens.
func TestClaimsAreHeld(t *testing.T) {
	makefile, err := os.ReadFile(path.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := goFiles(root, everything...)
	if err != nil {
		t.Fatal(err)
	}
	claims := 0
	for _, f := range files {
		if path.Dir(f.path) == "test/repo/figures" || !bytes.Contains(f.source, []byte("limits.Late(")) {
			continue
		}
		claims++
		command := regexp.MustCompile(`(?m)^\t(?:PNAP_SEED_FACTOR=\d+ )?go test \./` + path.Dir(f.path) + ` -run \S+ .* -hold\b`)
		if !command.Match(makefile) {
			t.Errorf("%s: no target of the Makefile runs its package with -hold", f.path)
		}
	}
	if claims < 5 {
		t.Errorf("%d files claim times", claims)
	}
}

// limit is a time after which a test fails.
type limit struct {
	file string
	line int
	// in is the function.
	in   string
	text string
}

// source is a parsed file with its text.
type source struct {
	file
	syntax
}

func (s source) between(n ast.Node) string {
	return string(s.source[s.positions.Position(n.Pos()).Offset:s.positions.Position(n.End()).Offset])
}

// shortLimits returns the limits below minLimit of all tests in real time.
func shortLimits(t *testing.T, files []file) []limit {
	t.Helper()
	packages := map[string][]source{}
	for _, f := range files {
		waits := f.isTest() || slices.ContainsFunc(waiting, func(s string) bool { return strings.HasPrefix(f.path, s) })
		if !waits || slices.Contains(virtual, path.Dir(f.path)) {
			continue
		}
		parsed, err := parse(f)
		if err != nil {
			t.Fatal(err)
		}
		packages[path.Dir(f.path)] = append(packages[path.Dir(f.path)], source{f, parsed})
	}
	others := map[string]int{"PollUntilContextTimeout": 2, "WithTimeout": 1, "WithTimeoutCause": 1}
	for _, sources := range packages {
		limitParameters(sources, others, ast.IsExported)
	}
	delete(others, "Late") // of package limits
	var found []limit
	for _, sources := range packages {
		own := limitParameters(sources, map[string]int{}, func(string) bool { return true })
		s := search{constants: durations(sources), own: own, others: others}
		for _, each := range sources {
			if !inVirtualTime(each.File) {
				found = append(found, s.of(each)...)
			}
		}
	}
	slices.SortFunc(found, func(a, b limit) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return found
}

// virtual are packages whose tests have a clock of their own.
var virtual = []string{
	"agent/announce/election", "controller/loadbalancer/orphans", "controller/loadbalancer/ipblock",
	"controller/loadbalancer/plan",
	"controller/loadbalancer/reconcile", "test/scenario/walk",
}

// waiting are the folders of code beside the tests that waits for them.
var waiting = []string{"test/env/labtest/", "test/scenario/agentlab/", "test/scenario/faults/"}

// inVirtualTime reports whether a file has tests in bubbles, where time passes only while all wait.
func inVirtualTime(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
}

// search knows the constants of a package, and which parameters of functions are limits.
type search struct {
	constants map[string]ast.Expr
	// own are the functions of the package, others the exported ones of all.
	own, others map[string]int
}

// limitNames are names of parameters, fields and variables for limits.
var limitNames = []string{
	"limit", "within", "timeout", "patience", "deadline", "late", "end", "wait", "most", "Timeout", "Limit",
}

// limitParameters adds the functions of a package with a parameter that is a limit, and which one it is.
func limitParameters(sources []source, found map[string]int, wanted func(name string) bool) map[string]int {
	for _, s := range sources {
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && wanted(f.Name.Name) {
				if at := s.limitIn(f.Type.Params); at >= 0 {
					found[f.Name.Name] = at
				}
			}
		}
	}
	return found
}

// limitIn returns which parameter is a limit; negative for none.
func (s source) limitIn(parameters *ast.FieldList) int {
	i := 0
	for _, p := range parameters.List {
		for _, name := range p.Names {
			if s.between(p.Type) == "time.Duration" && slices.Contains(limitNames, name.Name) {
				return i
			}
			i++
		}
	}
	return -1
}

// durations returns the constants of a package by name.
func durations(sources []source) map[string]ast.Expr {
	all := map[string]ast.Expr{}
	for _, s := range sources {
		ast.Inspect(s.File, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					all[name.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	return all
}

// of returns the limits of a file.
func (s search) of(f source) []limit {
	var found []limit
	for _, declaration := range f.Decls {
		hidden := map[string]bool{}
		in := ""
		if function, ok := declaration.(*ast.FuncDecl); ok {
			in = function.Name.Name
			for _, p := range function.Type.Params.List {
				for _, name := range p.Names {
					hidden[name.Name] = true
				}
			}
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			for _, e := range s.candidates(n) {
				if name, ok := e.(*ast.Ident); ok && hidden[name.Name] {
					continue
				}
				if d, ok := s.value(e, 0); ok && d > 0 && d < minLimit {
					found = append(found, limit{f.path, f.line(e.Pos()), in, f.between(e)})
				}
			}
			return true
		})
	}
	return found
}

// candidates are the expressions of a node that are limits if they are durations.
func (s search) candidates(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		return s.argument(n)
	case *ast.AssignStmt:
		if name, ok := n.Lhs[0].(*ast.Ident); ok && slices.Contains(limitNames, name.Name) {
			return []ast.Expr{fromNow(n.Rhs[0])}
		}
	case *ast.CommClause:
		if e, ok := n.Comm.(*ast.ExprStmt); ok && fails(n.Body) {
			if receive, ok := e.X.(*ast.UnaryExpr); ok {
				return []ast.Expr{fromNow(receive.X)}
			}
		}
	case *ast.KeyValueExpr:
		if name, ok := n.Key.(*ast.Ident); ok && slices.Contains(limitNames, name.Name) {
			return []ast.Expr{n.Value}
		}
	case *ast.ForStmt:
		if b, ok := n.Cond.(*ast.BinaryExpr); ok && (b.Op == token.LSS || b.Op == token.LEQ) {
			return []ast.Expr{b.Y} // for time.Since(begin) < limit
		}
	case *ast.BinaryExpr:
		return largest(n)
	}
	return nil
}

// largest is what a comparison has the other side exceed.
func largest(n *ast.BinaryExpr) []ast.Expr {
	if n.Op == token.GTR || n.Op == token.GEQ {
		return []ast.Expr{n.Y}
	}
	if n.Op == token.LSS || n.Op == token.LEQ {
		return []ast.Expr{n.X}
	}
	return nil
}

// argument is the limit of a call.
func (s search) argument(n *ast.CallExpr) []ast.Expr {
	name := called(n)
	at, ok := s.own[name]
	if !ok {
		at, ok = s.others[name]
	}
	last := len(n.Args) - 1
	switch {
	case ok && at <= last:
		return []ast.Expr{n.Args[at]}
	case strings.HasPrefix(name, "Set") && strings.HasSuffix(name, "Deadline"):
		return []ast.Expr{fromNow(n.Args[last])}
	case (name == "After" || name == "Before") && last == 0 && fromNow(n.Args[0]) != n.Args[0]:
		return []ast.Expr{fromNow(n.Args[0])} // t.After(begin.Add(limit))
	}
	return nil
}

// called is the name of a called function or method.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// fromNow is the time from now in time.After(d), time.NewTimer(d) and time.Now().Add(d).
func fromNow(e ast.Expr) ast.Expr {
	if c, ok := e.(*ast.CallExpr); ok && slices.Contains([]string{"After", "NewTimer", "Add"}, called(c)) {
		return c.Args[0]
	}
	return e
}

// fails reports whether statements fail a test.
func fails(body []ast.Stmt) bool {
	found := false
	for _, s := range body {
		ast.Inspect(s, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				found = found || slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf", "panic"}, called(c))
			}
			return true
		})
	}
	return found
}

// value evaluates a constant duration.
func (s search) value(e ast.Expr, depth int) (time.Duration, bool) {
	if depth > 5 {
		return 0, false
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.value(e.X, depth)
	case *ast.Ident:
		if of := s.constants[e.Name]; of != nil {
			return s.value(of, depth+1)
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && x.Name == "time" {
			d, err := time.ParseDuration(map[string]string{"Millisecond": "1ms", "Second": "1s", "Minute": "1m",
				"Hour": "1h", "Microsecond": "1us"}[e.Sel.Name])
			return d, err == nil
		}
	case *ast.BinaryExpr:
		return s.product(e, depth)
	}
	return 0, false
}

// product evaluates a number of units, or a sum.
func (s search) product(e *ast.BinaryExpr, depth int) (time.Duration, bool) {
	x := e.X
	y := e.Y
	if _, ok := y.(*ast.BasicLit); ok {
		x, y = y, x
	}
	unit, ok := s.value(y, depth+1)
	if n, literal := x.(*ast.BasicLit); literal && ok {
		count, err := strconv.ParseFloat(n.Value, 64)
		if e.Op == token.MUL {
			return time.Duration(count * float64(unit)), err == nil
		}
		if e.Op == token.QUO {
			return time.Duration(float64(unit) / count), err == nil
		}
	}
	more, known := s.value(x, depth+1)
	return more + unit, ok && known && e.Op == token.ADD
}

func TestShortLimits(t *testing.T) {
	const code = `package p

const patience = 2 * time.Second

func wait(t *testing.T, limit time.Duration) {
	for end := time.Now().Add(limit); ; {
	}
}

func Test(t *testing.T) {
	wait(t, 5*time.Second)
	wait(t, time.Minute)
	wait(t, patience)
	ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second)
	select {
	case <-done:
	case <-time.After(time.Second):
		t.Fatal("late")
	}
	select {
	case <-time.After(time.Second):
		again()
	}
	timeout := time.After(10 * time.Second)
	if took > time.Second+500*time.Millisecond || took < time.Second || took > 20*time.Second {
	}
	for begin := time.Now(); time.Since(begin) < patience; {
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second / 2))
	if seen.After(begin.Add(3*time.Second)) || limits.Late(took, time.Second) {
	}
	start(Program{Timeout: time.Second})
}
`
	files := []file{{"test/p_test.go", []byte(code)}, {"test/bubble_test.go", []byte(strings.Replace(code, "package p",
		"package p\n\nimport \"testing/synctest\"", 1))}, {"test/p.go", []byte(code)}}
	var got []string
	for _, found := range shortLimits(t, files) {
		got = append(got, found.text)
	}
	want := []string{"5*time.Second", "patience", "19*time.Second", "time.Second", "10 * time.Second",
		"time.Second+500*time.Millisecond", "patience", "time.Second / 2", "3*time.Second", "time.Second"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
