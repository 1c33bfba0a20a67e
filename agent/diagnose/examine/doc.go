// Package examine looks once at a node's way to the public network, or at one address of a Service, for a person who asks.
package examine
