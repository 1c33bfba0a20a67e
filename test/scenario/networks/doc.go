// Package networks shows clusters with two public networks. In two locations, with one VLAN ID: a Service has its
// address where it asks for one, only the servers there announce it, and a location that fails takes nothing else with
// it. In one location, with each server in both: a VLAN interface that fails moves only the addresses of its own
// network.
package networks
