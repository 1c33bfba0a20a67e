// Package arp probes by ARP which machine holds an address and listens to announcements, on sockets bound to one
// interface.
package arp
