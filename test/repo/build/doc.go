// Package build holds what `make build` makes against what it promises, as a test.
package build
