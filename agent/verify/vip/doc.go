// Package vip checks, by what is received on the wire, whether the addresses of Services are announced as they
// should be.
package vip
