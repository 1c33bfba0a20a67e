// Package responder answers ARP requests for addresses of Services from user space: the addresses are on no
// interface, so that a process that was killed stops answering and never gives a stale answer.
package responder
