// Package returnpath makes replies of the public network leave by its VLAN interface, each by the gateway of the
// block that the client asked: connection marks in an nftables table of its own, routing rules, and one routing table
// per gateway.
package returnpath
