package diagnose

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Address is what is known of one address besides the findings: who answers, and who should.
type Address struct {
	Address netip.Addr `json:"address"`
	// Role is what the address is in the network besides that of a Service, such as the gateway of a block; empty when
	// it is nothing else.
	Role string `json:"role,omitempty"`
	// Services are the Services that have the address, as namespace/name; more than one is a mistake.
	Services []string `json:"services,omitempty"`
	// Claimants are the machines that claimed the address on the wire. A machine never receives its own reply.
	Claimants []Claimant `json:"claimants"`
	// Holders are the nodes that should announce the address, and the source of that; sources may disagree.
	Holders []Holder `json:"holders"`
	// Sightings are what the agents of Nodes report of the address.
	Sightings []Sighting `json:"sightings"`
	// Held names the interfaces of this node that carry the address.
	Held []string `json:"held"`
	// ReturnBy is the interface by which this node sends replies from the address; empty unless it holds it.
	ReturnBy string `json:"returnBy,omitempty"`
	// Unasked says why no ARP request was sent; empty when it was.
	Unasked string `json:"unasked,omitempty"`
}

// Claimant is a machine that claimed the address by ARP.
type Claimant struct {
	// MAC is its hardware address, in lower case.
	MAC string `json:"mac"`
	// Nodes are the Nodes that reported that hardware address; empty when none did.
	Nodes []string `json:"nodes,omitempty"`
}

// Holder is a node that should announce the address.
type Holder struct {
	Node string `json:"node"`
	// Source is where that is recorded, such as "annotation kube-vip.io/vipHost of Service default/web".
	Source string `json:"source"`
}

// Sighting is what the agent of a Node reports of the address.
type Sighting struct {
	Node  string                `json:"node"`
	State contract.AddressState `json:"state"`
	// MAC is the hardware address that answered there; empty when none did.
	MAC string `json:"mac,omitempty"`
	// Held reports that the Node carries the address.
	Held bool `json:"held"`
	// Since is when that agent first saw it so.
	Since time.Time `json:"since"`
}

func (a *Address) write(p *page) {
	text := a.Address.String()
	if a.Role != "" {
		text += ", " + a.Role
	}
	p.field(0, "Address", text)
	p.field(0, "Service", orElse(strings.Join(a.Services, " and "), "none known"))
	p.section("Who answers on the wire", a.claimants())
	p.section("Who should", a.holders())
	if len(a.Sightings) > 0 {
		p.section("What agents report", a.sightings())
	}
	p.section("This node", a.here())
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// filled returns the address with empty lists in place of missing ones: programs read them alike.
func (a *Address) filled() *Address {
	if a == nil {
		return nil
	}
	b := *a
	b.Claimants = append([]Claimant{}, a.Claimants...)
	b.Sightings = append([]Sighting{}, a.Sightings...)
	b.Holders = append([]Holder{}, a.Holders...)
	b.Held = append([]string{}, a.Held...)
	return &b
}

func (p *page) section(heading string, lines []string) {
	p.line("")
	p.line(p.style.Heading(heading))
	for _, line := range lines {
		p.prose("  ", 4, line)
	}
}

func (a *Address) claimants() []string {
	if a.Unasked != "" {
		return []string{"not asked: " + a.Unasked}
	}
	var lines []string
	for _, c := range a.Claimants {
		owner := "not reported by any Node"
		if len(c.Nodes) > 0 {
			owner = "of Node " + strings.Join(c.Nodes, ", ")
		}
		lines = append(lines, c.MAC+" "+owner)
	}
	if lines == nil {
		return []string{"no other machine"}
	}
	return lines
}

func (a *Address) holders() []string {
	var lines []string
	for _, h := range a.Holders {
		lines = append(lines, fmt.Sprintf("Node %s, according to the %s", h.Node, h.Source))
	}
	if lines == nil {
		return []string{"not known"}
	}
	return lines
}

func (a *Address) sightings() []string {
	lines := make([]string, len(a.Sightings))
	for i, s := range a.Sightings {
		lines[i] = fmt.Sprintf("Node %s: %s", s.Node, strings.ToLower(string(s.State)))
		if s.MAC != "" {
			lines[i] += " by " + s.MAC
		}
		if s.Held {
			lines[i] += ", carries it"
		}
		lines[i] += " (since " + s.Since.UTC().Format(time.DateTime) + " UTC)"
	}
	return lines
}

func (a *Address) here() []string {
	if len(a.Held) == 0 {
		return []string{"does not hold the address"}
	}
	lines := []string{"holds the address on " + strings.Join(a.Held, ", ")}
	if a.ReturnBy != "" {
		lines = append(lines, "sends replies from it to clients outside by "+a.ReturnBy)
	}
	return lines
}
