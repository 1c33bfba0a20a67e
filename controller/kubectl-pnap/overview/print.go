package overview

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// sheet is an overview that is printed for people: tables of 80 columns, with words beside glyphs.
type sheet struct {
	text.Style
	Overview
}

// StyleFor returns the style for a writer, see text.ForWriter.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) text.Style {
	return text.ForWriter(w, term.GetSize, lookUp)
}

// outcome is the state of one item: a glyph, the same in ASCII, and a color.
type outcome struct{ glyph, ascii, color string }

var (
	healthy = outcome{"✔", "+", "32"}
	waiting = outcome{"!", "!", "33"}
	broken  = outcome{"✖", "x", "1;31"}
	unknown = outcome{"?", "?", "36"}
)

// mark writes a glyph before a word.
func (s sheet) mark(o outcome, word string) string {
	return s.Paint(s.Glyph(o.glyph, o.ascii)+" "+word, o.color)
}

func (s sheet) width() int { return max(text.MinWidth, s.Width) }

// gap stands between two columns of a table.
const gap = "  "

// table aligns rows in columns; the last column is wrapped to the width of the sheet.
func (s sheet) table(header []string, rows [][]string) string {
	painted := make([]string, len(header))
	for i, name := range header {
		painted[i] = s.Heading(name)
	}
	all := append([][]string{painted}, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], text.Columns(cell))
		}
	}
	indent := 0
	for _, width := range widths[:len(widths)-1] {
		indent += width + len(gap)
	}
	var b strings.Builder
	for _, row := range all {
		last := len(row) - 1
		for i, cell := range row[:last] {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-text.Columns(cell)) + gap)
		}
		b.WriteString(strings.Join(text.Wrap(row[last], max(s.width()-indent, 20)), "\n"+strings.Repeat(" ", indent)))
		b.WriteString("\n")
	}
	return b.String()
}

// paragraph wraps prose and indents every line after the first.
func (s sheet) paragraph(prose string) string {
	return strings.Join(text.Wrap(prose, s.width()-len(gap)), "\n"+gap) + "\n"
}

// staleAccount is how long ago the account may have been read, which the controller shows every five minutes.
const staleAccount = 15 * time.Minute

// PrintStatus writes the problems in full sentences, the most fundamental first, and then the state of the controller,
// nodes, Services and blocks. Of a cluster whose API server does not answer there is nothing else to write.
func PrintStatus(w io.Writer, style text.Style, o Overview) error {
	s := sheet{style, o}
	sections := []string{s.problems(o.Problems)}
	if !o.Unreachable() {
		sections = append(sections,
			s.controller()+s.network()+s.furtherNetworks(),
			s.Heading("NODES")+"\n"+s.nodes(),
			s.Heading("SERVICES")+"\n"+s.services(),
			s.Heading("IP BLOCKS")+"\n"+s.blocks())
	}
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

// problems lists problems in sentences, and what to do about them.
func (s sheet) problems(problems []Problem) string {
	if len(problems) == 0 {
		return s.mark(healthy, "no problems found") + "\n"
	}
	var b strings.Builder
	b.WriteString(s.Heading("PROBLEMS") + "\n")
	for _, p := range problems {
		b.WriteString(s.paragraph("- " + p.Message))
	}
	return b.String()
}

func (s sheet) controller() string {
	c := s.Controller
	var line string
	switch {
	case c.State == controllerUnknown:
		line = s.mark(unknown, "unknown")
	case c.State == controllerActive && c.Leader == "":
		line = s.mark(healthy, "works without leader election")
	case c.State == controllerActive:
		line = s.mark(healthy, c.Leader+" is the leader")
	case c.Renewed == nil:
		line = s.mark(broken, "none has ever led")
	default:
		leader := cmp.Or(c.Leader, "the last leader")
		line = s.mark(broken, fmt.Sprintf("no active replica: %s renewed its Lease %s ago", leader,
			s.age(*c.Renewed)))
	}
	switch {
	case c.Looked != nil:
		line += fmt.Sprintf("; account read %s ago", s.age(*c.Looked))
	case s.knows(PartNetworks):
		line += "; account not read yet"
	default:
		line += "; account unknown"
	}
	return s.paragraph("Controller: " + line)
}

func (s sheet) network() string {
	n := s.Network
	switch {
	case n.Off:
		return s.paragraph("Public network: none, because --load-balancer is not set")
	case n.ID == "" && !s.knows(PartNodes):
		return s.paragraph("Public network: " + s.mark(unknown, "unknown"))
	case n.ID == "":
		return s.paragraph("Public network: " + s.mark(unknown, "none is published on the Nodes"))
	case n.VLAN == 0: // known from the PublicNetwork only
		return s.paragraph(fmt.Sprintf("Public network: %s, not published on the Nodes yet", n.ID))
	}
	blocks := "its IP blocks are not known"
	if n.Blocks != "" {
		blocks = n.Blocks + " IPv4 blocks"
	}
	which := "Public network: " + n.ID
	if len(s.FurtherNetworks) > 0 { // beside which it needs a name
		which = fmt.Sprintf("Public network %s: %s, %s", cmp.Or(n.Name, v1beta1.DefaultNetwork), n.ID,
			cmp.Or(n.Location, "not read yet"))
	}
	return s.paragraph(fmt.Sprintf("%s, VLAN %d, announced by %s, %s", which, n.VLAN,
		cmp.Or(n.Announcer, contract.AnnouncerNone), blocks))
}

// furtherNetworks are a paragraph each.
func (s sheet) furtherNetworks() string {
	var all strings.Builder
	for _, n := range s.FurtherNetworks {
		where := cmp.Or(n.Location, "not read yet")
		if n.VLAN > 0 {
			where += fmt.Sprintf(", VLAN %d", n.VLAN)
		}
		if n.Blocks != "" {
			where += ", " + n.Blocks + " IPv4 blocks"
		}
		all.WriteString(s.paragraph(fmt.Sprintf("Public network %s: %s, %s", n.Name, n.ID, where)))
	}
	return all.String()
}

// notRead is the text in place of a table whose part was not read.
func (s sheet) notRead() string { return s.mark(unknown, "unknown, see the problems above") + "\n" }

func (s sheet) nodes() string {
	switch {
	case !s.knows(PartNodes):
		return s.notRead()
	case len(s.Nodes) == 0:
		return "none\n"
	}
	var rows [][]string
	for _, n := range s.Nodes {
		rows = append(rows, []string{
			n.Name, cmp.Or(n.ServerID, s.mark(unknown, "unknown")), s.membership(n), s.reported(n, n.VLANReady),
			s.reported(n, n.AnnouncementHealthy),
		})
	}
	return s.table([]string{"NODE", "SERVER", "MEMBER", "VLAN", "ADDRESSES"}, rows)
}

func (s sheet) membership(n Node) string {
	switch {
	case n.Membership == membershipYes && len(s.FurtherNetworks) > 0:
		return s.mark(healthy, strings.Join(n.Networks, ","))
	case n.Membership == membershipYes:
		return s.mark(healthy, n.Membership)
	case n.Membership == membershipNo:
		return s.mark(waiting, n.Membership)
	default:
		return s.mark(unknown, membershipUnknown)
	}
}

// reported is a condition of a Node, with the age of what is outdated.
func (s sheet) reported(n Node, v Condition) string {
	switch {
	case !n.Outdated || v.Status == "" || v.Status == "Unknown":
		return s.condition(v)
	case n.Renewed == nil:
		return s.mark(unknown, v.Reason+" (outdated)")
	default:
		return s.mark(unknown, v.Reason+" ("+s.age(*n.Renewed)+" ago)")
	}
}

func (s sheet) condition(v Condition) string {
	switch v.Status {
	case "True":
		return s.mark(healthy, v.Reason)
	case "False":
		return s.mark(broken, v.Reason)
	case "Unknown":
		return s.mark(unknown, v.Reason)
	default:
		return s.mark(unknown, "not reported")
	}
}

func (s sheet) services() string {
	switch {
	case !s.knows(PartServices):
		return s.notRead()
	case len(s.Services) == 0:
		return "none of type LoadBalancer\n"
	}
	var rows [][]string
	for _, service := range s.Services {
		rows = append(rows, []string{
			service.Namespace + "/" + service.Name, cmp.Or(service.Address, "-"), cmp.Or(service.Block, "-"),
			s.on(service), s.state(service),
		})
	}
	return s.table([]string{"SERVICE", "ADDRESS", "BLOCK", "ON", "STATE"}, rows)
}

// on returns the Nodes that answer for the address, "-" if none does, and "?" if no agent has reported it.
func (s sheet) on(service Service) string {
	switch {
	case len(service.On) > 0:
		return strings.Join(service.On, ",")
	case service.Address == "" || service.Announced.Status == "False":
		return "-"
	default:
		return "?"
	}
}

func (s sheet) state(service Service) string {
	switch {
	case !service.Reported() && s.Network.Off:
		return s.mark(unknown, "not served")
	case !service.Reported() && s.Controller.State != controllerActive:
		return s.mark(unknown, "unknown")
	case service.Going != nil:
		return s.mark(waiting, "deleting: "+service.State)
	case service.Healthy && service.Outdated:
		return s.mark(unknown, service.State+" (outdated)")
	case service.Healthy:
		return s.mark(healthy, service.State)
	case service.AddressPublished.True() && service.Announced.Status == "False",
		service.BlockAssigned.Status == "False" && service.Address != "":
		return s.mark(broken, service.State)
	case service.AddressPublished.True():
		return s.mark(unknown, service.State)
	default:
		return s.mark(waiting, service.State)
	}
}

func (s sheet) blocks() string {
	switch {
	case !s.knows(PartBlocks):
		return s.notRead()
	case len(s.Blocks) == 0 && s.Controller.Looked == nil && !s.Network.Off:
		return s.mark(unknown, "the controller has not read the account yet") + "\n"
	case len(s.Blocks) == 0:
		return "none\n"
	}
	var rows [][]string
	for _, b := range s.Blocks {
		rows = append(rows, []string{cmp.Or(b.CIDR, "-"), use(b), s.age(b.Created), s.standing(b), b.For})
	}
	return s.table([]string{"BLOCK", "USED", "AGE", "STANDING", "FOR"}, rows)
}

func (s sheet) standing(b Block) string {
	switch b.Standing {
	case standingInUse, standingFree:
		return s.mark(healthy, b.Standing)
	case standingOrphan:
		return s.mark(broken, b.Standing)
	default:
		return s.mark(waiting, b.Standing)
	}
}

// use returns how many addresses of a block are in use, and of how many.
func use(b Block) string {
	used := cmp.Or(b.Used, "?")
	if b.Quarantined > 0 {
		used += fmt.Sprintf(" (%d quarantined)", b.Quarantined)
	}
	return used
}

// age returns how long ago a time was when the cluster was read.
func (o Overview) age(since time.Time) string {
	return duration.HumanDuration(max(0, o.Time.Sub(since)))
}
