// Package examine examines a node's path to the public network once, or one address of a Service.
package examine
