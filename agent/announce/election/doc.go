// Package election decides which node answers for which address of a Service: the pure core of the agents' own announcer.
//
// A [Election] is what one node knows. It is stepped with a time and an [Input] and returns an [Output]; it has no clock, no
// goroutine and no I/O, so a test can lay every course of events before it.
//
// The owners of all addresses of a public network stand in one API object, the [View]. It is changed only by
// compare-and-swap, and only when something happens. The nodes of a view, its members, send each other a [Heartbeat] ten
// times a second on the public network. Four rules make an address answered by one node at most:
//
//  1. Lease. An owner answers only while a majority of the members (itself counted) acknowledged heartbeats that it sent no
//     longer ago than the lease, which is shorter than the silence after which a member is taken for silent. The API server
//     is not needed for that.
//  2. Seen. A node tells the highest number of a view that it knows to exist. An acknowledgement by a member that has seen a
//     newer view than the owner knows does not count: whoever has seen a view will never again support an owner of an older one,
//     itself included.
//  3. Proof. A new owner answers only once it knows that its predecessor cannot: the predecessor said so, or so many
//     members that no majority is left have seen the new view and say that they do not hear the predecessor, or a majority
//     has seen the new view for longer than a lease.
//  4. Overlap. The membership changes by one member at a time and only once a majority has seen the change before, so that
//     majorities of successive views always have a member in common. A member that dies before it has seen the removal of
//     another one is removed, too, when so many members of either view, who have seen the newer one, do not hear it that it
//     finds a majority of neither.
package election
