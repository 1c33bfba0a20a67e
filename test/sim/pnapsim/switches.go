package pnapsim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
)

// Switches choose an answer where it is not known what the real service does. An empty field means the
// default, which is named first.
type Switches struct {
	// Missing is the status for a missing or foreign resource: 403 or 404.
	Missing int `json:"missing,omitempty"`
	// DeleteWrongState is the status for deleting a block that is in use: 409, 400 or 403.
	DeleteWrongState int `json:"deleteWrongState,omitempty"`
	// DeleteErrorState lets a block in an error state without a resource be deleted: "refuse" or "allow".
	DeleteErrorState string `json:"deleteErrorState,omitempty"`
	// TagFilter combines repeated tag parameters by "and" or "or".
	TagFilter string `json:"tagFilter,omitempty"`
	// Busy is what a second change of a busy network meets: "409" or "queue".
	Busy string `json:"busy,omitempty"`
	// OverLimit is the status for one block too many on a network: 400, 409, 403 or 422.
	OverLimit int `json:"overLimit,omitempty"`
	// CreateStatus is the status of a block in the answer that creates it: "creating" or "unassigned".
	CreateStatus string `json:"createStatus,omitempty"`
	// AssignedIDFrom is the first state that shows the resource of a block: "assigning" or "assigned".
	AssignedIDFrom string `json:"assignedIDFrom,omitempty"`
	// AssignedType is the word for a network: "PUBLIC_NETWORK" or "public network".
	AssignedType string `json:"assignedType,omitempty"`
	// First31IsGateway gives the gateway of a /31 the first address ("on") or the second ("off").
	First31IsGateway string `json:"first31IsGateway,omitempty"`
	// QuotaCode is the status when the account may have no more of it: 403, 409 or 400.
	QuotaCode int `json:"quotaCode,omitempty"`
	// MemberAddress is the status for unassigning a block while a member has an address of it: 409 or 400.
	MemberAddress int `json:"memberAddress,omitempty"`
	// NotOfNetwork is the status for unassigning a block that the network does not have: 403 or 400.
	NotOfNetwork int `json:"notOfNetwork,omitempty"`
	// VLANInUse is the status for a VLAN ID that the location already uses: 409 or 400.
	VLANInUse int `json:"vlanInUse,omitempty"`
	// UnknownProperty is what an unknown body property meets: "ignore" or "400".
	UnknownProperty string `json:"unknownProperty,omitempty"`
	// ExtraFields adds a property of the future to every object of an answer: "on" or "off".
	ExtraFields string `json:"extraFields,omitempty"`
	// Scopes of tokens are checked: "strict" or "loose".
	Scopes string `json:"scopes,omitempty"`
	// TokenRefusal is the status for wrong client credentials: 401 or 400.
	TokenRefusal int `json:"tokenRefusal,omitempty"`
}

// choice is one switch with its possible values, the default first.
type choice struct {
	name    string
	number  *int
	numbers []int
	word    *string
	words   []string
}

func (s *Switches) choices() []choice {
	const refused, conflict, wrong = http.StatusForbidden, http.StatusConflict, http.StatusBadRequest
	return []choice{
		{name: "missing", number: &s.Missing, numbers: []int{refused, http.StatusNotFound}},
		{name: "deleteWrongState", number: &s.DeleteWrongState, numbers: []int{conflict, wrong, refused}},
		{name: "deleteErrorState", word: &s.DeleteErrorState, words: []string{"refuse", "allow"}},
		{name: "tagFilter", word: &s.TagFilter, words: []string{"and", "or"}},
		{name: "busy", word: &s.Busy, words: []string{"409", "queue"}},
		{name: "overLimit", number: &s.OverLimit, numbers: []int{wrong, conflict, refused,
			http.StatusUnprocessableEntity}},
		{name: "createStatus", word: &s.CreateStatus, words: []string{blockCreating, blockUnassigned}},
		{name: "assignedIDFrom", word: &s.AssignedIDFrom, words: []string{blockAssigning, blockAssigned}},
		{name: "assignedType", word: &s.AssignedType, words: []string{"PUBLIC_NETWORK", "public network"}},
		{name: "first31IsGateway", word: &s.First31IsGateway, words: []string{"on", "off"}},
		{name: "quotaCode", number: &s.QuotaCode, numbers: []int{refused, conflict, wrong}},
		{name: "memberAddress", number: &s.MemberAddress, numbers: []int{conflict, wrong}},
		{name: "notOfNetwork", number: &s.NotOfNetwork, numbers: []int{refused, wrong}},
		{name: "vlanInUse", number: &s.VLANInUse, numbers: []int{conflict, wrong}},
		{name: "unknownProperty", word: &s.UnknownProperty, words: []string{"ignore", "400"}},
		{name: "extraFields", word: &s.ExtraFields, words: []string{"on", "off"}},
		{name: "scopes", word: &s.Scopes, words: []string{"strict", "loose"}},
		{name: "tokenRefusal", number: &s.TokenRefusal, numbers: []int{http.StatusUnauthorized, wrong}},
	}
}

// withDefaults fills what is empty and refuses values that a switch does not have.
func (s Switches) withDefaults() (Switches, error) {
	for _, c := range s.choices() {
		switch {
		case c.number != nil && *c.number == 0:
			*c.number = c.numbers[0]
		case c.number != nil && !slices.Contains(c.numbers, *c.number):
			return s, fmt.Errorf("switch %s: %d is none of %v", c.name, *c.number, c.numbers)
		case c.word != nil && *c.word == "":
			*c.word = c.words[0]
		case c.word != nil && !slices.Contains(c.words, *c.word):
			return s, fmt.Errorf("switch %s: %q is none of %q", c.name, *c.word, c.words)
		}
	}
	return s, nil
}

// SwitchNames are the names of all switches, as in JSON.
func SwitchNames() []string {
	var s Switches
	var names []string
	for _, c := range s.choices() {
		names = append(names, c.name)
	}
	return names
}

// SwitchDefault is the default of a switch as text; empty when there is no such switch.
func SwitchDefault(name string) string {
	values := SwitchValues(name)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// SwitchValues are the values of a switch as text, the default first.
func SwitchValues(name string) []string {
	var s Switches
	for _, c := range s.choices() {
		if c.name != name {
			continue
		}
		values := slices.Clone(c.words)
		for _, number := range c.numbers {
			values = append(values, strconv.Itoa(number))
		}
		return values
	}
	return nil
}

// RandomSwitches throws every switch at random.
func RandomSwitches(random *rand.Rand) Switches {
	var s Switches
	for _, c := range s.choices() {
		if c.number != nil {
			*c.number = c.numbers[random.IntN(len(c.numbers))]
		} else {
			*c.word = c.words[random.IntN(len(c.words))]
		}
	}
	return s
}

// Validate reports a value that a switch does not have.
func (s Switches) Validate() error {
	_, err := s.withDefaults()
	return err
}
