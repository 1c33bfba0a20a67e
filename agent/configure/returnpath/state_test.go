package returnpath

import "testing"

func TestParseBits(t *testing.T) {
	for text, want := range map[string]Bits{"0xf0": 0xf0, "4096": 0x1000, "0x80000000": 0x80000000} {
		if got, err := ParseBits(text); err != nil || got != want {
			t.Errorf("ParseBits(%q) = %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "many", "-1", "0x4000", "0x8001", "0x100000000"} {
		if got, err := ParseBits(text); err == nil {
			t.Errorf("ParseBits(%q) = %s, want an error", text, got)
		}
	}
}

func TestValues(t *testing.T) {
	for _, b := range []Bits{0xf0, 0x2000, 0x3000, 0x80000001, 0x13} {
		seen := map[uint32]bool{}
		for i := range b.Count() {
			v := b.Value(i)
			if v == 0 || v&^uint32(b) != 0 || seen[v] {
				t.Errorf("%s: value %d is %#x", b, i, v)
			}
			seen[v] = true
		}
	}
	if got := Bits(0xf0).Count(); got != 15 {
		t.Errorf("four bits distinguish %d gateways, want 15", got)
	}
}
