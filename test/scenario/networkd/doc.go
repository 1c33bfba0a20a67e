// Package networkd holds the tests of a managing agent beside a real systemd-networkd, of printed fixes with the real
// tools that configure a network, and of the commands that findings print.
package networkd
