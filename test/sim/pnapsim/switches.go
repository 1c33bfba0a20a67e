package pnapsim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Switches choose an answer where it is not known what the real service does. An empty field means the
// default, which is named first.
type Switches struct {
	// Missing is the status for a missing or foreign resource: 403 or 404.
	Missing int `json:"missing,omitempty" values:"403|404"`
	// DeleteWrongState is the status for deleting a block that is in use: 409, 400 or 403.
	DeleteWrongState int `json:"deleteWrongState,omitempty" values:"409|400|403"`
	// DeleteErrorState lets a block in an error state without a resource be deleted: "refuse" or "allow".
	DeleteErrorState string `json:"deleteErrorState,omitempty" values:"refuse|allow"`
	// TagFilter combines repeated tag parameters by "and" or "or".
	TagFilter string `json:"tagFilter,omitempty" values:"and|or"`
	// Busy is what a second change of a busy network meets: "409" or "queue".
	Busy string `json:"busy,omitempty" values:"409|queue"`
	// OverLimit is the status for one block too many on a network: 400, 409, 403 or 422.
	OverLimit int `json:"overLimit,omitempty" values:"400|409|403|422"`
	// CreateStatus is the status of a block in the answer that creates it: "creating" or "unassigned".
	CreateStatus string `json:"createStatus,omitempty" values:"creating|unassigned"`
	// AssignedIDFrom is the first state that shows the resource of a block: "assigning" or "assigned".
	AssignedIDFrom string `json:"assignedIDFrom,omitempty" values:"assigning|assigned"`
	// AssignedType is the word for a network: "PUBLIC_NETWORK" or "public network".
	AssignedType string `json:"assignedType,omitempty" values:"PUBLIC_NETWORK|public network"`
	// First31IsGateway gives the gateway of a /31 the first address ("on") or the second ("off").
	First31IsGateway string `json:"first31IsGateway,omitempty" values:"on|off"`
	// QuotaCode is the status when the account may have no more of it: 403, 409 or 400.
	QuotaCode int `json:"quotaCode,omitempty" values:"403|409|400"`
	// MemberAddress is the status for unassigning a block while a member has an address of it: 409 or 400.
	MemberAddress int `json:"memberAddress,omitempty" values:"409|400"`
	// NotOfNetwork is the status for unassigning a block that the network does not have: 403 or 400.
	NotOfNetwork int `json:"notOfNetwork,omitempty" values:"403|400"`
	// VLANInUse is the status for a VLAN ID that the location already uses: 409 or 400.
	VLANInUse int `json:"vlanInUse,omitempty" values:"409|400"`
	// UnknownProperty is what an unknown body property meets: "ignore" or "400".
	UnknownProperty string `json:"unknownProperty,omitempty" values:"ignore|400"`
	// ExtraFields adds a property of the future to every object of an answer: "on" or "off".
	ExtraFields string `json:"extraFields,omitempty" values:"on|off"`
	// Scopes of tokens are checked: "strict" or "loose".
	Scopes string `json:"scopes,omitempty" values:"strict|loose"`
	// TokenRefusal is the status for wrong client credentials: 401 or 400.
	TokenRefusal int `json:"tokenRefusal,omitempty" values:"401|400"`
}

// choice is one switch with its possible values, the default first.
type choice struct {
	reflect.Value
	name   string
	values []string
}

func (s *Switches) choices() []choice {
	var all []choice
	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, choice{value, name, strings.Split(field.Tag.Get("values"), "|")})
	}
	return all
}

// set gives the switch one of its values.
func (c choice) set(value string) error {
	number, _ := strconv.Atoi(value)
	switch {
	case !slices.Contains(c.values, value):
		return fmt.Errorf("switch %s: %s is none of %s", c.name, value, strings.Join(c.values, ", "))
	case c.CanInt():
		c.SetInt(int64(number))
	default:
		c.SetString(value)
	}
	return nil
}

// withDefaults fills what is empty and refuses values that a switch does not have.
func (s Switches) withDefaults() (Switches, error) {
	for _, c := range s.choices() {
		value := c.values[0]
		if !c.IsZero() {
			value = fmt.Sprint(c.Value)
		}
		if err := c.set(value); err != nil {
			return s, err
		}
	}
	return s, nil
}

// SwitchNames are the names of all switches, as in JSON.
func SwitchNames() []string {
	var names []string
	for _, c := range new(Switches).choices() {
		names = append(names, c.name)
	}
	return names
}

// SwitchValues are the values of a switch as text, the default first.
func SwitchValues(name string) []string {
	for _, c := range new(Switches).choices() {
		if c.name == name {
			return c.values
		}
	}
	return nil
}

// RandomSwitches throws every switch at random.
func RandomSwitches(random *rand.Rand) Switches {
	var s Switches
	for _, c := range s.choices() {
		_ = c.set(c.values[random.IntN(len(c.values))]) // it has that value
	}
	return s
}

// Set gives the switch of that name a value; one that it does not have is an error.
func (s *Switches) Set(name, value string) error {
	for _, c := range s.choices() {
		if c.name == name {
			return c.set(value)
		}
	}
	return fmt.Errorf("there is no switch %q", name)
}
