// Package responder answers ARP requests for addresses of Services from user space: the addresses are on no interface, so
// that a process that was killed leaves silence and never a stale answer.
package responder
