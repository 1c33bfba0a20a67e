// Package l2 asks by ARP who holds an address, on a socket bound to one interface.
package l2
