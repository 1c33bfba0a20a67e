// Package guest is what the host and the init program of the virtual machine agree on: what to run in it and
// what comes back.
package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// SpecPath is where the init program finds its Spec, as JSON.
	SpecPath = "/etc/machine.json"
	// PayloadMount is where the read-only disk with the large files is mounted; every file on it appears as a
	// symbolic link under / as well.
	PayloadMount = "/payload"
	// HostAddress is the host's loopback interface as the guest sees it (QEMU's user-mode network).
	HostAddress = "10.0.2.2"
	// Address is the guest's own address on that network.
	Address = "10.0.2.15/24"
	// Variable is set to Inside in the environment of everything that runs in the machine.
	Variable = "PNAP_KERNEL"
	// Inside is the value of Variable for a program that already has the kernel it asks for.
	Inside = "inside"
)

// Port is the name of the virtio-serial port that carries everything out of the machine, as frames.
const Port = "machine.link"

// Spec defines what the machine does.
type Spec struct {
	// Command is the program with its arguments, Env its environment, Dir its working directory.
	Command []string
	Env     []string
	Dir     string
	// Disk reports that there is a payload disk.
	Disk bool
	// Network reports that there is a user-mode NIC to configure.
	Network bool
	// Fetch names files that are sent back when the command has ended; those that do not exist are left out.
	Fetch []string
}

// Result is how the command ended.
type Result struct {
	// ExitCode is that of the command; 128 plus the signal's number when a signal ended it, as in a shell.
	ExitCode int
	// Error explains why the command could not be run; empty when it ran.
	Error string
	// Files holds the contents of the files of Spec.Fetch that exist.
	Files map[string][]byte
}

// Stream identifies what a frame carries.
type Stream byte

// The streams of a machine. All go through one port: a write to a port returns before the host has read it, and what
// the host has not read when the machine is switched off is lost. In one queue, the result comes last and says that
// everything before it has arrived.
const (
	Stdout     Stream = 1
	Stderr     Stream = 2
	ResultJSON Stream = 3
	// Booted carries how long the machine has run by its own clock, as time.Duration prints it. The command runs when
	// the host has answered with one byte.
	Booted Stream = 4
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
