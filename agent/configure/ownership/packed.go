package ownership

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
)

// packedWord is the word of a record that holds settings and addresses where they are too long as text.
const packedWord = "packed"

// run is up to 16 addresses side by side that have the same prefix length: a whole block of the public network is one.
// Packed, it takes runSize bytes: the first address, whose last four bits hold how much shorter than 32 the prefix
// length is, and a bit for each of the 16.
type run struct {
	first netip.Addr
	bits  int
}

const (
	runSize  = 4 + 2
	runCount = 16
)

var errPacked = errors.New("not a packed record")

// pack writes settings and addresses into one word; ok is false where it cannot hold them.
func (r Record) pack() (word string, ok bool) {
	packed := []byte{byte(len(r.Before))} //nolint:gosec // one for each setting there is
	for _, setting := range slices.Sorted(maps.Keys(r.Before)) {
		if setting > math.MaxUint8 {
			return "", false
		}
		packed = binary.AppendVarint(append(packed, byte(setting)), int64(r.Before[setting]))
	}
	runs := map[run]uint16{}
	for _, p := range r.Addresses {
		if !p.Addr().Is4() || p.Addr().BitLen()-p.Bits() >= runCount {
			return "", false
		}
		at := runOf(p)
		runs[at] |= 1 << (p.Addr().As4()[3] % runCount)
	}
	for _, at := range slices.SortedFunc(maps.Keys(runs), compareRuns) {
		first := at.first.As4()
		first[3] |= byte(at.first.BitLen() - at.bits) //nolint:gosec // less than runCount
		packed = binary.BigEndian.AppendUint16(append(packed, first[:]...), runs[at])
	}
	return packedWord + "=" + base64.RawURLEncoding.EncodeToString(packed), true
}

func runOf(p netip.Prefix) run {
	first := p.Addr().As4()
	first[3] -= first[3] % runCount
	return run{first: netip.AddrFrom4(first), bits: p.Bits()}
}

func compareRuns(a, b run) int {
	if order := a.first.Compare(b.first); order != 0 {
		return order
	}
	return a.bits - b.bits
}

// unpack reads what pack wrote.
func (r *Record) unpack(word string) error {
	packed, err := base64.RawURLEncoding.DecodeString(word)
	if err != nil || len(packed) == 0 {
		return errPacked
	}
	count := int(packed[0])
	packed = packed[1:]
	for range count {
		if packed, err = r.unpackSetting(packed); err != nil {
			return err
		}
	}
	if len(packed)%runSize != 0 {
		return errPacked
	}
	for part := range slices.Chunk(packed, runSize) {
		if err := r.unpackRun(part); err != nil {
			return err
		}
	}
	return nil
}

// unpackSetting reads one setting and returns what follows it.
func (r *Record) unpackSetting(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, errPacked
	}
	setting := Setting(packed[0])
	value, size := binary.Varint(packed[1:])
	_, known := settingNames[setting]
	if !known || size <= 0 || value != int64(int32(value)) { //nolint:gosec // checked
		return nil, fmt.Errorf("%w: setting %d", errPacked, setting)
	}
	r.before(setting, int(value))
	return packed[1+size:], nil
}

func (r *Record) unpackRun(part []byte) error {
	first := [4]byte(part[:4])
	bits := 32 - int(first[3]%runCount)
	first[3] -= first[3] % runCount
	present := binary.BigEndian.Uint16(part[4:])
	if present == 0 {
		return errPacked
	}
	for i := range byte(runCount) {
		if present&(1<<i) != 0 {
			address := netip.AddrFrom4([4]byte{first[0], first[1], first[2], first[3] + i})
			r.Addresses = append(r.Addresses, netip.PrefixFrom(address, bits))
		}
	}
	return nil
}
