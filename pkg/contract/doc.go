// Package contract names what the controller, the agent and their users agree on: provider ID,
// annotations, labels, tags and conditions, each with its codec. A name here is an interface; change
// one only with a migration.
package contract
