// Package networkd holds the tests of a managing agent beside a real systemd-networkd.
package networkd
