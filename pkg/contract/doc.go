// Package contract defines the names that the controller, the agent and their users share: provider ID, annotations,
// labels, tags and conditions, each with its codec. A name here is an interface; change one only with a migration.
package contract
