// Package vlan makes and keeps the VLAN interface of the public network on a node: the interface, its address and its
// settings. It undoes only what it did.
package vlan
