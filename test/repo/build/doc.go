// Package build tests that the results of `make build` are as promised.
package build
