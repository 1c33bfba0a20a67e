package announcer

// Config is what a Core is made of.
type Config struct {
	// Node is the name of the Node.
	Node string
	// Boot tells this life of the agent apart from the ones before and is greater than theirs.
	Boot uint64
	// First is the number of a view that is made from nothing; it must be greater than that of any view that was deleted.
	// Seconds since 1970 will do: views change less than once a second in the long run.
	First uint64
	// Seed makes the jitter of heartbeats; nodes should have different ones.
	Seed uint64
}
