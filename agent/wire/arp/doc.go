// Package arp asks by ARP who holds an address and listens to what is said, on sockets bound to one interface.
package arp
