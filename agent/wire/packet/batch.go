//go:build linux

package packet

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Batch holds received frames or frames to send. It belongs to one goroutine.
type Batch struct {
	size     int
	room     []byte
	vectors  []unix.Iovec
	messages []unix.Mmsghdr
	count    int
	sent     int
	failure  error
	// receive and send are created once, because a closure is an allocation.
	receive, send func(fd uintptr) bool
}

// NewBatch returns a batch for a number of frames of a size in bytes each; longer frames are cut.
func NewBatch(frames, size int) *Batch {
	b := &Batch{
		size: size, room: make([]byte, frames*size),
		vectors: make([]unix.Iovec, frames), messages: make([]unix.Mmsghdr, frames),
	}
	for i := range frames {
		b.vectors[i].Base = &b.room[i*size]
		b.vectors[i].SetLen(size)
		b.messages[i].Hdr.Iov = &b.vectors[i]
		b.messages[i].Hdr.SetIovlen(1)
	}
	b.receive = b.receiveFrom
	b.send = b.sendTo
	return b
}

// Len is the number of frames.
func (b *Batch) Len() int { return b.count }

// Received is one of the frames that Receive read; it is valid until the batch is used again.
func (b *Batch) Received(i int) []byte { return b.room[i*b.size : i*b.size+int(b.messages[i].Len)] }

// Reset empties the batch.
func (b *Batch) Reset() { b.count = 0 }

// Full reports whether no frame can be added.
func (b *Batch) Full() bool { return b.count == len(b.messages) }

// Add adds a frame to send; it is cut to the size of the batch, and dropped when the batch is full.
func (b *Batch) Add(frame []byte) {
	if b.Full() {
		return
	}
	n := copy(b.room[b.count*b.size:(b.count+1)*b.size], frame)
	b.vectors[b.count].SetLen(n)
	b.count++
}

// receiveFrom is called by the runtime when there may be something to read; false makes it wait.
func (b *Batch) receiveFrom(fd uintptr) bool {
	n, errno := b.call(unix.SYS_RECVMMSG, fd, b.messages)
	for errno == unix.EINTR {
		n, errno = b.call(unix.SYS_RECVMMSG, fd, b.messages)
	}
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		b.count = 0
		b.failure = errno
	default:
		b.count = n
	}
	return true
}

// sendTo is called by the runtime when there may be room to write; it never waits, because a late frame would be
// wrong.
func (b *Batch) sendTo(fd uintptr) bool {
	for b.sent < b.count {
		n, errno := b.call(unix.SYS_SENDMMSG, fd, b.messages[b.sent:b.count])
		switch {
		case errno == unix.EINTR:
		case errno == unix.ENOBUFS || errno == unix.EAGAIN:
			return true
		case errno != 0:
			b.failure = errno
			return true
		default:
			b.sent += n
		}
	}
	return true
}

func (b *Batch) call(trap, fd uintptr, messages []unix.Mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(trap, fd, uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// IsLinkDown reports whether the interface is down or gone. A socket reports that once; it continues when the
// interface comes up, unless that was created again.
func IsLinkDown(err error) bool {
	return errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}
