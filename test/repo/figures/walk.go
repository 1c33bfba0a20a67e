package figures

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the beginning of the import paths of our packages.
const module = "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/"

// walk follows the Service through the code as a reader does: in the order in which it is written, into each function
// that gets the Service, or a value of ours that has one in its fields, where it is first named. A function of which
// only an interface is named is entered if there is one of the kind.
type walk struct {
	bodies map[*types.Func]*ast.FuncDecl
	infos  map[*types.Package]*types.Info
	named  []*types.Named

	read map[*types.Func]bool
	// stays are the packages in the order in which they are entered, one that is come back to once more each time.
	stays []string
}

// walkFigures measure the way of a Service from the first function of the core to its address.
func walkFigures(root string) ([]string, error) {
	w, err := loadWalk(root, "./controller/...", "./pkg/...")
	if err != nil {
		return nil, err
	}
	if err := w.from("controller/loadbalancer/reconcile", "Balancer", "Ensure"); err != nil {
		return nil, err
	}
	distinct := map[string]bool{}
	for _, stay := range w.stays {
		distinct[stay] = true
	}
	return []string{
		Count("service_walk_functions", len(w.read), "functions"),
		Count("service_walk_stays", len(w.stays), "stays"),
		Count("service_walk_packages", len(distinct), "packages"),
		Count("service_walk_returns", len(w.stays)-len(distinct), "returns"),
	}, nil
}

// loadWalk reads the packages with their types.
func loadWalk(root string, patterns ...string) (*walk, error) {
	loaded, err := packages.Load(&packages.Config{Dir: root, Mode: packages.NeedName | packages.NeedFiles |
		packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load the packages of the controller: %w", err)
	}
	w := &walk{bodies: map[*types.Func]*ast.FuncDecl{}, infos: map[*types.Package]*types.Info{},
		read: map[*types.Func]bool{}}
	var problems []error
	for _, p := range loaded {
		for _, problem := range p.Errors {
			problems = append(problems, problem)
		}
		w.add(p)
	}
	return w, errors.Join(problems...)
}

func (w *walk) add(p *packages.Package) {
	w.infos[p.Types] = p.TypesInfo
	for _, file := range p.Syntax {
		for _, declaration := range file.Decls {
			if body, ok := declaration.(*ast.FuncDecl); ok && body.Body != nil {
				if function, ok := p.TypesInfo.Defs[body.Name].(*types.Func); ok {
					w.bodies[function] = body
				}
			}
		}
	}
	scope := p.Types.Scope()
	for _, name := range scope.Names() {
		if named, ok := scope.Lookup(name).Type().(*types.Named); ok && !types.IsInterface(named) {
			w.named = append(w.named, named)
		}
	}
}

// from walks from a method.
func (w *walk) from(path, receiver, method string) error {
	for p := range w.infos {
		if p.Path() != module+path {
			continue
		}
		if holder := p.Scope().Lookup(receiver); holder != nil {
			found, _, _ := types.LookupFieldOrMethod(types.NewPointer(holder.Type()), true, p, method)
			if function, ok := found.(*types.Func); ok {
				w.enter(function)
				return nil
			}
		}
	}
	return fmt.Errorf("package %s has no method %s.%s", path, receiver, method)
}

// enter reads a function, unless it was read before or is none of ours.
func (w *walk) enter(function *types.Func) {
	function = function.Origin()
	body, ours := w.bodies[function]
	if !ours || w.read[function] {
		return
	}
	w.read[function] = true
	w.stay(function.Pkg())
	info := w.infos[function.Pkg()]
	ast.Inspect(body.Body, func(n ast.Node) bool {
		name, isName := n.(*ast.Ident)
		if !isName {
			return true
		}
		if named, ok := info.Uses[name].(*types.Func); ok {
			if behind := w.behind(named); behind != nil && getsService(behind.Signature()) {
				w.enter(behind)
				w.stay(function.Pkg())
			}
		}
		return true
	})
}

// stay notes that the reader is in a package.
func (w *walk) stay(p *types.Package) {
	if len(w.stays) == 0 || w.stays[len(w.stays)-1] != p.Path() {
		w.stays = append(w.stays, p.Path())
	}
}

// behind is the function that a name stands for; nil for a method of an interface that several types have, or none.
func (w *walk) behind(named *types.Func) *types.Func {
	receiver := named.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		return named
	}
	demanded, ok := receiver.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var found []*types.Func
	for _, candidate := range w.named {
		pointer := types.NewPointer(candidate)
		if !types.Implements(pointer, demanded) {
			continue
		}
		object, _, _ := types.LookupFieldOrMethod(pointer, true, named.Pkg(), named.Name())
		if method, ok := object.(*types.Func); ok {
			found = append(found, method)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// getsService reports whether a receiver or parameter carries a Service.
func getsService(signature *types.Signature) bool {
	if receiver := signature.Recv(); receiver != nil && carriesService(receiver.Type(), fieldsOfFields) {
		return true
	}
	for parameter := range signature.Params().Variables() {
		if carriesService(parameter.Type(), fieldsOfFields) {
			return true
		}
	}
	return false
}

// fieldsOfFields is how deep in a value of ours a Service is looked for.
const fieldsOfFields = 3

func carriesService(t types.Type, depth int) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	if named.Obj().Pkg().Path() == "k8s.io/api/core/v1" {
		return named.Obj().Name() == "Service"
	}
	fields, ok := named.Underlying().(*types.Struct)
	if !ok || depth == 0 || !strings.HasPrefix(named.Obj().Pkg().Path()+"/", module) {
		return false
	}
	for field := range fields.Fields() {
		if carriesService(field.Type(), depth-1) {
			return true
		}
	}
	return false
}
