// Package networks shows a cluster in two locations, each with a public network of the same VLAN ID: a Service has its
// address where it asks for one, only the servers there announce it, and a location that fails takes nothing else with
// it.
package networks
