// Package networkd holds the tests of a managing agent and of printed fixes beside a real systemd-networkd, and of the
// commands that findings print.
package networkd
