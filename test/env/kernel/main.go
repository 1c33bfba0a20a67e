//go:build linux

// Package kernel gives the tests of any package a kernel with 802.1Q: the running one where it has it, else that of
// a small virtual machine. The caller does not notice which.
package kernel

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

// Variable is the environment variable that selects where tests run: "machine" for the virtual machine
// even where the running kernel would do, "host" for the running kernel or a failure. Its third value, which marks
// a process that already has the kernel it asks for, is not for people.
const Variable = guest.Variable

// The values of Variable.
const (
	choiceMachine = "machine"
	choiceHost    = "host"
)

// Option changes what a package's tests find around them.
type Option func(*options)

type options struct {
	programs []string
	files    map[string]string
}

// Programs makes sure that programs such as nft are installed and to be found by the tests.
func Programs(names ...string) Option {
	return func(o *options) { o.programs = append(o.programs, names...) }
}

// File lets the tests read a file or directory from outside their package, by the same absolute path. The files and
// the testdata of the package itself are always there.
func File(path string) Option {
	return func(o *options) { o.files[path] = path }
}

// Main runs the tests of a package in a fresh network namespace of a kernel with 802.1Q and returns the exit code for
// os.Exit. It belongs into TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(kernel.Main(m)) }
//
// All flags of go test have their usual meaning. It never skips: where no such kernel is available, the package fails
// with one sentence that says why.
func Main(m *testing.M, opts ...Option) int {
	choice := os.Getenv(Variable)
	if choice == guest.Inside {
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{files: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	code, err := run(ctx, choice, o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: no kernel with 802.1Q for these tests: %v\n", err)
		return 1
	}
	return code
}

// run chooses the kernel and runs the tests there.
func run(ctx context.Context, choice string, o options) (int, error) {
	inPlace, err := place(ctx, choice)
	switch {
	case err != nil:
		return 0, err
	case inPlace:
		return runInPlace(ctx, o)
	default:
		return runInMachine(ctx, o)
	}
}

// InPlace reports whether what needs 802.1Q can run on this kernel (true) or has to go into a virtual machine (false),
// by the user's choice (Variable) and by Detect.
func InPlace(ctx context.Context) (bool, error) { return place(ctx, os.Getenv(Variable)) }

func place(ctx context.Context, choice string) (inPlace bool, err error) {
	switch choice {
	case guest.Inside:
		return true, nil
	case choiceMachine:
		return false, nil
	case choiceHost:
		return true, Detect(ctx)
	case "":
		return Detect(ctx) == nil, nil
	default:
		return false, fmt.Errorf("%s=%q: set it to %q or %q, or leave it empty", Variable, choice, choiceMachine,
			choiceHost)
	}
}
