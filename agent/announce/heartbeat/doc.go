// Package heartbeat exchanges heartbeats between the agents of a cluster on the public network itself: short signed
// broadcasts, which prove what no Lease can, that the VLAN carries frames.
//
// A heartbeat is a UDP datagram in an IPv4 broadcast. A network that carries ARP carries broadcasts, and a switch
// that lets only some protocols pass lets IPv4 pass. It is written and read on a packet socket: no firewall of the
// node and no route affects it, and no port is open.
package heartbeat
