// Package heartbeat lets the agents of a cluster hear each other on the public network itself: short signed frames to all,
// which show what no lease can, that the way through the VLAN works.
//
// A heartbeat is a UDP datagram in an IPv4 broadcast. A network that carries ARP carries broadcasts, and a switch that lets
// only some protocols pass lets IPv4 pass. It is written and read on a packet socket: no firewall of the node and no route is
// in its way, no port is open.
package heartbeat
