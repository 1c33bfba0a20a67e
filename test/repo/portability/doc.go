// Package portability makes sure that the project compiles where its developers work, whatever they work on.
package portability
