package ownership

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// maxBlocks is how many IPv4 blocks a public network can have.
const maxBlocks = 10

// someBlocks are as many blocks of random sizes as a network can have, or fewer.
func someBlocks(r *rand.Rand) []netip.Prefix {
	var blocks []netip.Prefix
	for range 1 + r.IntN(maxBlocks) {
		var address [4]byte
		binary.BigEndian.PutUint32(address[:], r.Uint32())
		blocks = append(blocks, netip.PrefixFrom(netip.AddrFrom4(address), 28+r.IntN(3)).Masked())
	}
	return blocks
}

// addressesOf are the addresses of a block, each with a probability of part in four.
func addressesOf(block netip.Prefix, r *rand.Rand, part int) []netip.Prefix {
	var all []netip.Prefix
	for a := block.Addr(); block.Contains(a); a = a.Next() {
		if r.IntN(4) < part {
			all = append(all, netip.PrefixFrom(a, block.Bits()))
		}
	}
	return all
}

// someRecord is one of a link that has no alias: addresses of one network, or of two while one set replaces the other.
func someRecord(r *rand.Rand) Record {
	record := Record{Made: r.IntN(2) == 0, Down: r.IntN(2) == 0}
	for range 1 + r.IntN(2) {
		part := 1 + r.IntN(4)
		for _, block := range someBlocks(r) {
			record.Addresses = append(record.Addresses, addressesOf(block, r, part)...)
		}
	}
	slices.SortFunc(record.Addresses, netip.Prefix.Compare)
	record.Addresses = slices.Compact(record.Addresses)
	if record.Made {
		record.Down = false
		return record
	}
	for _, setting := range slices.Sorted(maps.Keys(settingNames)) {
		record.Changes(Settings{setting: r.IntN(4) - 1})
	}
	return record
}

// TestRecordHasRoom: whatever addresses of ten blocks the server has, and while they are replaced by those of ten
// others, the record fits and is read as it was written.
func TestRecordHasRoom(t *testing.T) {
	longest := 0
	most := 0
	for seed := range uint64(seeds.Count(t, 500)) {
		want := someRecord(rand.New(rand.NewPCG(seed, 1)))
		alias, err := want.Encode()
		if err != nil || len(alias) > maxAlias {
			t.Fatalf("seed %d: %d addresses: %d bytes, %v", seed, len(want.Addresses), len(alias), err)
		}
		got, ok, err := ParseRecord(alias)
		if diff := cmp.Diff(want, got, byValue); !ok || err != nil || diff != "" {
			t.Fatalf("seed %d: %q: %v (-want +got):\n%s", seed, alias, err, diff)
		}
		longest = max(longest, len(alias))
		most = max(most, len(want.Addresses))
	}
	if most < maxBlocks*16 {
		t.Errorf("at most %d addresses were tried: the test shows nothing", most)
	}
	t.Logf("figure record_addresses_held %d addresses", most)
	t.Logf("figure record_longest_bytes %d bytes", longest)
}

var room = regexp.MustCompile(`shorten it to (\d+) bytes`)

// TestRefusedRecord follows what a refusal says: with an alias as short as it asks for, and with fewer addresses, the
// record fits; with one byte more it does not.
func TestRefusedRecord(t *testing.T) {
	refused := 0
	for seed := range uint64(seeds.Count(t, 500)) {
		r := rand.New(rand.NewPCG(seed, 2))
		record := someRecord(r)
		record.Alias = strings.Repeat("x", 1+r.IntN(250))
		_, err := record.Encode()
		if err == nil {
			continue
		}
		refused++
		match := room.FindStringSubmatch(err.Error())
		if match == nil {
			record.Alias = ""
			if _, err := record.Encode(); err == nil {
				t.Fatalf("seed %d: without the alias the record fits, and the refusal does not say so: %v", seed, err)
			}
			continue
		}
		length, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		for delta, fits := range []bool{true, false} {
			record.Alias = strings.Repeat("x", length+delta)
			if _, err := record.Encode(); (err == nil) != fits {
				t.Fatalf("seed %d: an alias of %d bytes: %v", seed, length+delta, err)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: the test shows nothing")
	}
	many := Record{Made: true}
	for i := range 40 {
		many.Addresses = append(many.Addresses, netip.MustParsePrefix(fmt.Sprintf("198.51.%d.1/24", i)))
	}
	_, err := many.Encode()
	if err == nil || !strings.Contains(err.Error(), "remove addresses from the server") {
		t.Fatalf("addresses in 40 blocks: %v", err)
	}
	many.Addresses = many.Addresses[:20]
	if _, err := many.Encode(); err != nil {
		t.Errorf("after addresses were removed: %v", err)
	}
}
