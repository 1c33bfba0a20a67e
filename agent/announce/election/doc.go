// Package election decides which node answers for which address of a Service. It is the pure core of the announcer.
//
// An [Election] is the state of one node. Each step takes a time and an [Input] and returns an [Output]. It has no
// clock, no goroutine and no I/O, so a test can play any sequence of events.
//
// The owners of all addresses of a public network are in one API object, the [View]. It is changed only by
// compare-and-swap, and only when something happens. The nodes of a view, its members, send each other a [Heartbeat]
// ten times a second on the public network. Five rules ensure that at most one node answers for an address:
//
//  1. Lease. An owner answers only while a majority of the members (itself included) acknowledges heartbeats that are
//     not older than the lease. The lease is shorter than the suspect timeout, after which a member counts as silent.
//     This does not need the API server.
//  2. Seen. A node reports the highest number of a view that it knows to exist. An acknowledgement by a member that has
//     seen a newer view than the owner knows does not count: a node that has seen a view never again supports an owner
//     by an older one, itself included.
//  3. Proof. A new owner answers only when it knows that its predecessor cannot: the predecessor reported so; or so
//     many members that no majority is left have seen the new view and report that they do not receive the
//     predecessor's heartbeats; or a majority has seen the new view for longer than a lease.
//  4. Overlap. The membership changes by one member at a time, and only after a majority has seen the previous change,
//     so that majorities of successive views always have a member in common. A member that fails before it has seen the
//     removal of another one is removed, too, when so many members of either view, who have seen the newer one, do not
//     receive its heartbeats that it finds a majority of neither.
//  5. Minority. A member counts as off when nothing is heard of it, its kubelet does not renew the Lease of its
//     Node, no machine claims its addresses, and the API server and the gateway answer. If so many are off that neither
//     this view nor the one before has a majority, the rest removes them. A node that had no majority for long asks for
//     the view before it supports any node again, or hears that all members still know it.
package election
