package guest

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFramesComeBackInOrder(t *testing.T) {
	var link bytes.Buffer
	type frame struct {
		stream Stream
		data   string
	}
	sent := []frame{{Stdout, "a"}, {Stderr, ""}, {Stdout, "longer than the header"}, {ResultJSON, "{}"}}
	for _, f := range sent {
		if err := WriteFrame(&link, f.stream, []byte(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		stream, data, err := ReadFrame(&link)
		if err != nil || (frame{stream, string(data)}) != want {
			t.Errorf("ReadFrame() = %d, %q, %v, want %v", stream, data, err, want)
		}
	}
	if _, _, err := ReadFrame(&link); !errors.Is(err, io.EOF) {
		t.Errorf("ReadFrame() after the last = %v, want the end", err)
	}
}

// FuzzReadFrame: what is read without an error is what WriteFrame writes, and no length makes it read on forever.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 2, 'o', 'k'})
	f.Add([]byte{1, 0, 0, 0, 2, 'o'})
	f.Add([]byte{3, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		stream, data, err := ReadFrame(bytes.NewReader(in))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteFrame(&out, stream, data); err != nil || !bytes.HasPrefix(in, out.Bytes()) {
			t.Errorf("%x was read as stream %d, %x, which is written as %x (%v)", in, stream, data, out.Bytes(), err)
		}
	})
}
