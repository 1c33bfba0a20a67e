package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Stream identifies what a frame carries.
type Stream byte

// The streams of a machine. All go through one port: a write to a port returns before the host has read it, and what
// the host has not read when the machine is switched off is lost. In one queue, the result comes last and says that
// everything before it has arrived.
const (
	Stdout     Stream = 1
	Stderr     Stream = 2
	ResultJSON Stream = 3
	// Started carries nothing: the machine has booted, and its command is about to run.
	Started Stream = 4
)

// FrameLimit is how long a frame may be, in bytes; files come back in the result.
const FrameLimit = 256 << 20

// headerSize is the stream and the length of the data, big-endian.
const headerSize = 1 + 4

// WriteFrame writes one frame with a single call of w.
func WriteFrame(w io.Writer, s Stream, data []byte) error {
	if len(data) > FrameLimit {
		return fmt.Errorf("frame of %d bytes is longer than %d", len(data), FrameLimit)
	}
	frame := append([]byte{byte(s), 0, 0, 0, 0}, data...)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	_, err := w.Write(frame)
	return err
}

// ReadFrame reads one frame. io.EOF means that there is none; an end within a frame is io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader) (Stream, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > FrameLimit {
		return 0, nil, fmt.Errorf("frame of %d bytes is longer than %d", size, FrameLimit)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Stream(header[0]), data, nil
}
