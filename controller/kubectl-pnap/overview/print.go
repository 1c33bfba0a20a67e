package overview

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// sheet is an overview that is printed for people: tables of 80 columns, with words beside glyphs.
type sheet struct {
	text.Style
	Overview
}

// StyleFor returns the style for a writer, see text.For.
func StyleFor(w io.Writer, lookUp func(string) (string, bool)) text.Style {
	columns := 0
	isTerminal := false
	if file, ok := w.(*os.File); ok {
		width, _, err := term.GetSize(int(file.Fd()))
		columns = width
		isTerminal = err == nil
	}
	return text.For(isTerminal, columns, lookUp)
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

// staleReport is the age from which the controller's report, which it writes every five minutes, counts as old.
const staleReport = 15 * time.Minute

// PrintStatus writes the state of the controller, nodes, Services and blocks, and the problems in full sentences.
func PrintStatus(w io.Writer, style text.Style, o Overview) error {
	s := sheet{style, o}
	sections := []string{
		s.controller() + s.network(),
		s.Heading("NODES") + "\n" + s.nodes(),
		s.Heading("SERVICES") + "\n" + s.services(),
		s.Heading("IP BLOCKS") + "\n" + s.blocks(),
	}
	if problems := s.problems(); problems != "" {
		sections = append(sections, s.Heading("PROBLEMS")+"\n"+problems)
	}
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

func (s sheet) controller() string {
	c := s.Controller
	var line string
	switch {
	case c.Renewed == nil:
		line = s.mark(unknown, "no Lease, or no permission to read it")
	case c.Silent:
		leader := cmp.Or(c.Leader, "the last leader")
		line = s.mark(broken, fmt.Sprintf("no active replica: %s renewed its Lease %s ago", leader,
			s.age(*c.Renewed)))
	default:
		line = s.mark(healthy, c.Leader+" is the leader")
	}
	if c.Looked != nil {
		line += fmt.Sprintf("; account reported %s ago", s.age(*c.Looked))
	}
	return s.paragraph("Controller: " + line)
}

func (s sheet) network() string {
	n := s.Network
	if n.ID == "" {
		return s.paragraph("Public network: " + s.mark(unknown, "none is published on the Nodes"))
	}
	return s.paragraph(fmt.Sprintf("Public network: %s, VLAN %d, announced by %s, %d of %d IPv4 blocks",
		n.ID, n.VLAN, cmp.Or(n.Announcer, contract.AnnouncerNone), n.Blocks, plan.NetworkBlockLimit))
}

func (s sheet) nodes() string {
	if len(s.Nodes) == 0 {
		return s.nothing("none")
	}
	var rows [][]string
	for _, n := range s.Nodes {
		member := s.mark(healthy, "yes")
		if !n.Member {
			member = s.mark(waiting, "no")
		}
		rows = append(rows, []string{
			n.Name, cmp.Or(n.ServerID, "not found"), member, s.condition(n.VLANReady),
			s.condition(n.AnnouncementHealthy),
		})
	}
	return s.table([]string{"NODE", "SERVER", "MEMBER", "VLAN", "ADDRESSES"}, rows)
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
		return s.mark(unknown, "no agent")
	}
}

func (s sheet) services() string {
	if len(s.Services) == 0 {
		return s.nothing("none of type LoadBalancer")
	}
	var rows [][]string
	for _, service := range s.Services {
		rows = append(rows, []string{
			service.Namespace + "/" + service.Name, cmp.Or(service.Address, "-"), cmp.Or(service.Block, "-"),
			cmp.Or(strings.Join(service.On, ","), "-"), s.state(service),
		})
	}
	return s.table([]string{"SERVICE", "ADDRESS", "BLOCK", "ON", "STATE"}, rows)
}

func (s sheet) state(service Service) string {
	switch {
	case service.Going != nil:
		return s.mark(waiting, "deleting: "+service.State)
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
	if len(s.Blocks) == 0 {
		return s.noBlocks()
	}
	var rows [][]string
	for _, b := range s.Blocks {
		rows = append(rows, []string{b.CIDR, use(b), s.created(b), s.standing(b), b.For})
	}
	return s.table([]string{"BLOCK", "USE", "AGE", "STANDING", "FOR"}, rows)
}

func (s sheet) noBlocks() string {
	if s.Controller.Looked == nil {
		return s.mark(unknown, "not reported by the controller yet") + "\n"
	}
	return "none\n"
}

func (s sheet) standing(b Block) string {
	switch b.Standing {
	case contract.StandingInUse, contract.StandingBrought:
		return s.mark(healthy, b.Standing)
	case contract.StandingChecking, standingRetained:
		return s.mark(waiting, b.Standing)
	default:
		return s.mark(broken, b.Standing)
	}
}

// nothing returns the text for an empty list, which may be empty because of missing permissions.
func (s sheet) nothing(none string) string {
	if len(s.Unreadable) > 0 {
		return "(no permission)\n"
	}
	return none + "\n"
}

// use returns how many addresses of a block are in use, of those that Services may have.
func use(b Block) string {
	if b.Holders == nil {
		return strconv.Itoa(b.Used)
	}
	text := fmt.Sprintf("%d of %d", b.Used, b.Used+b.Resting+b.Free)
	if b.Resting > 0 {
		text += fmt.Sprintf(" (%d quarantined)", b.Resting)
	}
	return text
}

func (s sheet) created(b Block) string {
	if b.Created == nil {
		return "-"
	}
	return s.age(*b.Created)
}

func (s sheet) age(since time.Time) string { return duration.HumanDuration(max(0, s.Time.Sub(since))) }

// problems lists what is wrong, and what to do about it, in sentences; empty when there is no problem.
func (s sheet) problems() string {
	var b strings.Builder
	add := func(format string, args ...any) { b.WriteString(s.paragraph("- " + fmt.Sprintf(format, args...))) }
	for _, text := range s.Unreadable {
		add("%s", text)
	}
	if s.Controller.Looked != nil && s.Time.Sub(*s.Controller.Looked) > staleReport {
		add("The report on IP blocks is %s old: no controller has read the account since.",
			s.age(*s.Controller.Looked))
	}
	for _, n := range s.Nodes {
		for _, v := range []Condition{n.VLANReady, n.AnnouncementHealthy} {
			if v.Status != "" && !v.True() {
				add("Node %s: %s (kubectl pnap diagnose node %s)", n.Name, cmp.Or(v.Message, v.Reason), n.Name)
			}
		}
	}
	for _, service := range s.Services {
		if !service.Healthy {
			message := cmp.Or(service.Message(), service.State)
			add("Service %s/%s: %s%s", service.Namespace, service.Name, message, hint(service))
		}
	}
	switch count := s.releasable(); count {
	case 0:
	case 1:
		add("1 IP block is paid for but unused (kubectl pnap blocks)")
	default:
		add("%d IP blocks are paid for but unused (kubectl pnap blocks)", count)
	}
	return b.String()
}

// hint returns the command that explains why an address is published but not answered.
func hint(service Service) string {
	if service.Address == "" || !service.AddressPublished.True() || service.Going != nil {
		return ""
	}
	return " (kubectl pnap diagnose vip " + service.Address + ")"
}

func (s sheet) releasable() int {
	count := 0
	for _, b := range s.Blocks {
		if b.Releasable() && b.Standing != standingRetained {
			count++
		}
	}
	return count
}
