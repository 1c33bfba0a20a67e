// Package local tests what make run-local does on a developer's machine.
package local
