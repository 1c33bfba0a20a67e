package arp

import "time"

// Heard is a received ARP packet.
type Heard struct {
	Announcement
	// At is when it was received.
	At time.Time
	// Own reports whether this machine sent it.
	Own bool
}

// Counters count packets since the Listener was made.
type Counters struct {
	// Heard are those that other machines sent, Sent those of this machine: the kernel's and kube-vip's as well as
	// ours.
	Heard, Sent uint64
	// Dropped are those that claim nothing: malformed, or not about IPv4 addresses. Probes (RFC 5227) are among them.
	Dropped uint64
}
