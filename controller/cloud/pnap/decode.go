package pnap

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// longestRange bounds the addresses that a range "a - b" is expanded to; longer ranges are invalid.
const longestRange = 4096

// object is a JSON object whose properties are read one by one: a property that is absent or of another type reads as
// empty and does not affect the others.
type object map[string]json.RawMessage

// decode returns the zero value for JSON of another type.
func decode[T any](raw json.RawMessage) T {
	var value, none T
	if json.Unmarshal(raw, &value) != nil {
		return none
	}
	return value
}

// decodeEach decodes the elements of a list, and drops those of another type.
func decodeEach[T any](list []json.RawMessage) []T {
	elements := make([]T, 0, len(list))
	for _, raw := range list {
		var element T
		if json.Unmarshal(raw, &element) == nil {
			elements = append(elements, element)
		}
	}
	return elements
}

func (o object) text(key string) string { return decode[string](o[key]) }

func (o object) flag(key string) bool { return decode[bool](o[key]) }

func (o object) nested(key string) object { return decode[object](o[key]) }

func (o object) list(key string) []object {
	elements := decodeEach[object](decode[[]json.RawMessage](o[key]))
	return slices.DeleteFunc(elements, func(element object) bool { return element == nil })
}

// number reads an integer, which may be encoded as a string.
func (o object) number(key string) int {
	value, err := strconv.Atoi(strings.Trim(string(o[key]), `"`))
	if err != nil {
		return 0
	}
	return value
}

// addresses reads a list of addresses and ranges of addresses, in the order given.
func (o object) addresses(key string) []netip.Addr {
	var all []netip.Addr
	for _, text := range decodeEach[string](decode[[]json.RawMessage](o[key])) {
		all = append(all, expandRange(text)...)
	}
	return all
}

// expandRange parses "a" and "a - b", both ends included, as in the API's property "ips". Any other text yields
// nothing.
func expandRange(text string) []netip.Addr {
	from, to, isRange := strings.Cut(text, " - ")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return nil
	}
	if !isRange {
		return []netip.Addr{first}
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || last.Is4() != first.Is4() || last.Less(first) {
		return nil
	}
	var all []netip.Addr
	for addr := first; addr.IsValid() && !last.Less(addr); addr = addr.Next() {
		if len(all) == longestRange {
			return nil
		}
		all = append(all, addr)
	}
	return all
}

// decodeList decodes a list whose elements are identified by the property key. Elements without the key are dropped and
// logged, so that one invalid element never blocks the others.
func decodeList(ctx context.Context, op string, body []byte, key string) ([]object, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, unreadable(op, "", err)
	}
	if raw == nil {
		return nil, unreadable(op, "", errors.New("null instead of a list"))
	}
	elements := slices.DeleteFunc(decodeEach[object](raw), func(o object) bool { return o.text(key) == "" })
	if dropped := len(raw) - len(elements); dropped > 0 {
		klog.FromContext(ctx).Info("Dropped invalid elements of a phoenixNAP API answer",
			"operation", op, "dropped", dropped, "kept", len(elements))
	}
	return elements, nil
}

// decodeNew decodes an object that the request with that name created.
func decodeNew(op, name string, body []byte) (object, error) {
	var value object
	if err := json.Unmarshal(body, &value); err != nil {
		return nil, unreadable(op, name, err)
	}
	if value.text("id") == "" {
		return nil, unreadable(op, name, errors.New("the property id is missing"))
	}
	return value, nil
}

// decodeObject decodes one object and checks that it is the requested one.
func decodeObject(op, id string, body []byte) (object, error) {
	value, err := decodeNew(op, id, body)
	if err != nil {
		return nil, err
	}
	if got := value.text("id"); got != id {
		return nil, unreadable(op, id, errors.New("unexpected object: "+shorten(got)))
	}
	return value, nil
}
