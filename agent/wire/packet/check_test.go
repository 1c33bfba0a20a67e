//go:build linux

package packet

import (
	"errors"
	"fmt"
	"testing"
)

// interfaces answers Look.
type interfaces struct {
	link Link
	err  error
}

func (i interfaces) look(string) (Link, error) { return i.link, i.err }

var (
	link       = Link{Name: "bond0.100", Index: 7, MAC: [6]byte{2, 0, 0, 0, 0, 1}, Up: true}
	errUnknown = fmt.Errorf("find interface bond0.100: %w: no buffer space available", ErrUnreadable)
	errMissing = errors.New("find interface bond0.100: Link not found")
)

// TestCarrier: an interface is up for as long as the kernel does not say otherwise.
func TestCarrier(t *testing.T) {
	down := link
	down.Up = false
	carrier := &Carrier{}
	for i, step := range []struct {
		name string
		interfaces
		want bool
	}{
		{"bond0.100", interfaces{err: errUnknown}, false},
		{"bond0.100", interfaces{link: link}, true},
		{"bond0.100", interfaces{err: errUnknown}, true},
		{"bond0.100", interfaces{link: down}, false},
		{"bond0.100", interfaces{err: errUnknown}, false},
		{"bond0.100", interfaces{link: link}, true},
		{"bond0.200", interfaces{err: errUnknown}, false},
		{"bond0.100", interfaces{link: link}, true},
		{"bond0.100", interfaces{err: errMissing}, false},
		{"bond0.100", interfaces{err: errUnknown}, false},
	} {
		if got := carrier.Up(step.name, step.look); got != step.want {
			t.Errorf("step %d, %s: up %t", i, step.name, got)
		}
	}
}

// TestCheck: a socket is opened again when its interface has changed, and not when the kernel does not answer.
func TestCheck(t *testing.T) {
	other := link
	other.Index++
	another := link
	another.MAC[5]++
	for name, tc := range map[string]struct {
		name string
		interfaces
		keep bool
	}{
		"as it was":        {"bond0.100", interfaces{link: link}, true},
		"unreadable":       {"bond0.100", interfaces{err: errUnknown}, true},
		"missing":          {"bond0.100", interfaces{err: errMissing}, false},
		"created again":    {"bond0.100", interfaces{link: other}, false},
		"another address":  {"bond0.100", interfaces{link: another}, false},
		"another name":     {"bond0.200", interfaces{link: link}, false},
		"unreadable, gone": {"", interfaces{err: errUnknown}, false},
	} {
		p := &Port{Link: link}
		if _, err := p.Check(tc.name, tc.look); (err == nil || errors.Is(err, ErrUnreadable)) != tc.keep {
			t.Errorf("%s: %v, want kept %t", name, err, tc.keep)
		}
	}
}

// TestLookMissing: that there is no such interface is an answer of the kernel.
func TestLookMissing(t *testing.T) {
	if _, err := Look("none0"); err == nil || errors.Is(err, ErrUnreadable) {
		t.Errorf("none0: %v", err)
	}
	if _, err := Look("lo"); err == nil || errors.Is(err, ErrUnreadable) {
		t.Errorf("lo, which has no address of Ethernet: %v", err)
	}
}
