// Package packet sends and receives Ethernet frames of one type on one interface, many with one system call.
package packet
