// Package vip judges, from what is heard on the wire, whether the addresses of Services are announced as they
// should be.
package vip
