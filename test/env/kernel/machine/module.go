//go:build linux

package machine

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// module is a loadable kernel module of a kernel tree.
type module struct {
	// Name as lsmod prints it, with underscores.
	Name string
	// Path relative to lib/modules/<version>.
	Path string
	// Depends names the modules that must be loaded first, Aliases the patterns by which the kernel asks for it.
	Depends, Aliases []string
}

// moduleIndex finds modules by name.
type moduleIndex struct {
	modules map[string]string // name → path relative to the root
	builtin map[string]bool
	root    string
}

// openIndex reads the names of the modules below root, a lib/modules/<version> directory. The package need not
// have been installed: modules.dep, which depmod makes then, is not used.
func openIndex(root string) (*moduleIndex, error) {
	x := &moduleIndex{modules: map[string]string{}, builtin: map[string]bool{}, root: root}
	err := filepath.WalkDir(filepath.Join(root, "kernel"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.Contains(e.Name(), ".ko") {
			return err
		}
		rel, err := filepath.Rel(root, p)
		x.modules[moduleName(p)] = rel
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the modules of %s: %w", root, err)
	}
	built, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("list the built-in modules of %s: %w", root, err)
	}
	for _, line := range strings.Fields(string(built)) {
		x.builtin[moduleName(line)] = true
	}
	return x, nil
}

// resolve returns the named modules with all that they depend on, dependencies first, each once.
func (x *moduleIndex) resolve(names ...string) ([]module, error) {
	return closure(names, x.lookup)
}

// lookup reads one module; nil when it is built into the kernel.
func (x *moduleIndex) lookup(name string) (*module, error) {
	rel, ok := x.modules[name]
	switch {
	case ok && !strings.HasSuffix(rel, ".ko"):
		return nil, fmt.Errorf("kernel module %s is compressed: unpack the modules of %s (xz -d or zstd -d) before use",
			rel, x.root)
	case ok:
		return readModule(x.root, rel)
	case x.builtin[name]:
		return nil, nil
	default:
		return nil, fmt.Errorf("kernel %s has no module %s: choose a kernel package that has it", filepath.Base(x.root),
			name)
	}
}

// closure walks the dependencies in depth-first order.
func closure(names []string, lookup func(string) (*module, error)) ([]module, error) {
	var order []module
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		m, err := lookup(name)
		if err != nil || m == nil {
			return err
		}
		for _, d := range m.Depends {
			if err := visit(d); err != nil {
				return fmt.Errorf("needed by %s: %w", name, err)
			}
		}
		order = append(order, *m)
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readModule reads a module's own description from its ELF section .modinfo.
func readModule(root, rel string) (*module, error) {
	f, err := elf.Open(filepath.Join(root, rel))
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", rel, err)
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read kernel module %s: %w", rel, errors.New("it has no section .modinfo"))
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", rel, err)
	}
	m := parseModinfo(info)
	m.Name = moduleName(rel)
	m.Path = rel
	return &m, nil
}

// parseModinfo reads the zero-terminated key=value pairs of a .modinfo section.
func parseModinfo(info []byte) module {
	var m module
	for _, pair := range bytes.Split(info, []byte{0}) {
		key, value, _ := strings.Cut(string(pair), "=")
		switch key {
		case "depends":
			for _, d := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
				m.Depends = append(m.Depends, underscores(d))
			}
		case "alias":
			m.Aliases = append(m.Aliases, value)
		}
	}
	return m
}

// dependencies renders modules.dep: for each module all that it needs. modprobe loads from the
// right, so that what depends on nothing stands last.
func dependencies(modules []module) []byte {
	byName := map[string]module{}
	for _, m := range modules {
		byName[m.Name] = m
	}
	var out bytes.Buffer
	for _, m := range modules {
		need, _ := closure(m.Depends, func(name string) (*module, error) {
			if d, ok := byName[name]; ok {
				return &d, nil
			}
			return nil, nil // built in
		})
		slices.Reverse(need)
		fmt.Fprintf(&out, "%s:", m.Path)
		for _, d := range need {
			fmt.Fprintf(&out, " %s", d.Path)
		}
		fmt.Fprintln(&out)
	}
	return out.Bytes()
}

// aliases renders modules.alias, by which the kernel's own requests find a module.
func aliases(modules []module) []byte {
	var out bytes.Buffer
	for _, m := range modules {
		for _, a := range m.Aliases {
			fmt.Fprintf(&out, "alias %s %s\n", a, m.Name)
		}
	}
	return out.Bytes()
}

// moduleName is the name of the module in a file: kernel/net/xt-foo.ko.xz is xt_foo.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return underscores(name)
}

func underscores(name string) string { return strings.ReplaceAll(name, "-", "_") }
