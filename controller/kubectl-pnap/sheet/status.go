package sheet

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// staleReport is the age from which the controller's report on the account counts as old: it reports every five
// minutes.
const staleReport = 15 * time.Minute

// Status writes the state of the controller, nodes, Services and blocks, and the problems in full sentences.
func (s Style) Status(w io.Writer, o overview.Overview) error {
	sections := []string{
		s.controller(o) + s.network(o),
		s.heading("NODES") + "\n" + s.nodes(o),
		s.heading("SERVICES") + "\n" + s.services(o),
		s.heading("IP BLOCKS") + "\n" + s.blocks(o),
	}
	if problems := s.problems(o); problems != "" {
		sections = append(sections, s.heading("PROBLEMS")+"\n"+problems)
	}
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

func (s Style) controller(o overview.Overview) string {
	c := o.Controller
	var line string
	switch {
	case c.Renewed == nil:
		line = s.mark(unknown, "no Lease, or no permission to read it")
	case c.Silent:
		leader := cmp.Or(c.Leader, "the last leader")
		line = s.mark(broken, fmt.Sprintf("no active replica: %s renewed its Lease %s ago", leader,
			age(o.Time, *c.Renewed)))
	default:
		line = s.mark(healthy, c.Leader+" is the leader")
	}
	if c.Looked != nil {
		line += fmt.Sprintf("; account reported %s ago", age(o.Time, *c.Looked))
	}
	return s.paragraph("Controller: " + line)
}

func (s Style) network(o overview.Overview) string {
	n := o.Network
	if n.ID == "" {
		return s.paragraph("Public network: " + s.mark(unknown, "none is published on the Nodes"))
	}
	return s.paragraph(fmt.Sprintf("Public network: %s, VLAN %d, announced by %s, %d of %d IPv4 blocks",
		n.ID, n.VLAN, cmp.Or(n.Announcer, contract.AnnouncerNone), n.Blocks, plan.NetworkBlockLimit))
}

func (s Style) nodes(o overview.Overview) string {
	if len(o.Nodes) == 0 {
		return nothing(o, "none")
	}
	var rows [][]string
	for _, n := range o.Nodes {
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

func (s Style) condition(v overview.Condition) string {
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

func (s Style) services(o overview.Overview) string {
	if len(o.Services) == 0 {
		return nothing(o, "none of type LoadBalancer")
	}
	var rows [][]string
	for _, service := range o.Services {
		rows = append(rows, []string{
			service.Namespace + "/" + service.Name, cmp.Or(service.Address, "-"), cmp.Or(service.Block, "-"),
			cmp.Or(strings.Join(service.On, ","), "-"), s.state(service),
		})
	}
	return s.table([]string{"SERVICE", "ADDRESS", "BLOCK", "ON", "STATE"}, rows)
}

func (s Style) state(service overview.Service) string {
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

func (s Style) blocks(o overview.Overview) string {
	if len(o.Blocks) == 0 {
		return s.noBlocks(o)
	}
	var rows [][]string
	for _, b := range o.Blocks {
		rows = append(rows, []string{b.CIDR, use(b), created(o.Time, b), s.standing(b), b.For})
	}
	return s.table([]string{"BLOCK", "USE", "AGE", "STANDING", "FOR"}, rows)
}

func (s Style) noBlocks(o overview.Overview) string {
	if o.Controller.Looked == nil {
		return s.mark(unknown, "not reported by the controller yet") + "\n"
	}
	return "none\n"
}

func (s Style) standing(b overview.Block) string {
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
func nothing(o overview.Overview, none string) string {
	if len(o.Unreadable) > 0 {
		return "(no permission)\n"
	}
	return none + "\n"
}

// use returns how many addresses of a block are in use, of those that Services may have.
func use(b overview.Block) string {
	if b.Holders == nil {
		return strconv.Itoa(b.Used)
	}
	text := fmt.Sprintf("%d of %d", b.Used, b.Used+b.Resting+b.Free)
	if b.Resting > 0 {
		text += fmt.Sprintf(" (%d quarantined)", b.Resting)
	}
	return text
}

func created(now time.Time, b overview.Block) string {
	if b.Created == nil {
		return "-"
	}
	return age(now, *b.Created)
}

func age(now, since time.Time) string { return duration.HumanDuration(max(0, now.Sub(since))) }
