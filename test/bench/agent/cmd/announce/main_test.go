package main

import (
	"bytes"
	"net"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

func TestFrames(t *testing.T) {
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	got, err := frames(arp.OperationRequest, own, ethernet.Broadcast, []string{"198.18.0.66"})
	want := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 198, 18, 0, 66, 255, 255, 255, 255, 255, 255, 198, 18, 0,
		66}
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("frames % x (%v), want % x", got, err, want)
	}
	for _, wrong := range []string{"", "2001:db8::1"} {
		if _, err := frames(arp.OperationReply, own, own, []string{wrong}); err == nil {
			t.Errorf("%q is announced", wrong)
		}
	}
}

func TestQuestions(t *testing.T) {
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	got, err := questions(own, "198.18.0.4", []string{"198.18.0.66"})
	want := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 198, 18, 0, 4, 0, 0, 0, 0, 0, 0, 198, 18, 0, 66}
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("questions % x (%v), want % x", got, err, want)
	}
	if _, err := questions(own, "", []string{"198.18.0.66"}); err == nil {
		t.Error("a question without a sender is asked")
	}
}
