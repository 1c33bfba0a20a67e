package netinfo

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// Routes looks up routes as the kernel would choose them (RTM_GETROUTE); nothing is sent.
func (r *Reader) Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer {
	answers := make([]check.RouteAnswer, 0, len(questions))
	for _, q := range questions {
		answers = append(answers, lookUp(s, q))
	}
	return answers
}

func lookUp(s check.Snapshot, q check.RouteQuestion) check.RouteAnswer {
	answer := check.RouteAnswer{RouteQuestion: q}
	options := &netlink.RouteGetOptions{Mark: q.Mark}
	if q.Source.IsValid() {
		options.SrcAddr = q.Source.AsSlice()
	}
	from := q.Iif
	if q.Forwarded {
		way := lookUp(s, check.RouteQuestion{Destination: q.Source})
		if way.Interface == "" || way.Local {
			answer.Error = "no interface leads to " + q.Source.String()
			return answer
		}
		from, answer.By = way.Interface, way.Interface
	}
	if from != "" {
		l := s.LinkNamed(from)
		if l == nil {
			answer.Error = "there is no interface " + from
			return answer
		}
		options.IifIndex = l.Index
	}
	routes, err := netlink.RouteGetWithOptions(q.Destination.AsSlice(), options)
	fill(&answer, s, routes, err)
	if q == (check.RouteQuestion{Destination: q.Destination}) && answer.Interface != "" && !answer.Local && !answer.Gateway.IsValid() {
		answer.Pinned = pinned(routes[0].LinkIndex, q.Destination)
	}
	return answer
}

// pinned reads one entry of the neighbour table: the hardware address of a permanent one, else nothing.
func pinned(link int, destination netip.Addr) string {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.AddData(&netlink.Ndmsg{Family: uint8(nl.GetIPFamily(destination.AsSlice())), Index: uint32(link)})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, destination.AsSlice()))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil || len(messages) == 0 {
		return ""
	}
	entry, err := netlink.NeighDeserialize(messages[0])
	if err != nil || entry.State&netlink.NUD_PERMANENT == 0 {
		return ""
	}
	return macText(entry.HardwareAddr)
}

func fill(answer *check.RouteAnswer, s check.Snapshot, routes []netlink.Route, err error) {
	switch {
	case err != nil:
		answer.Error = errnoText(err)
	case len(routes) == 0:
		answer.Error = "no answer"
	case routes[0].Type == unix.RTN_BLACKHOLE, routes[0].Type == unix.RTN_UNREACHABLE, routes[0].Type == unix.RTN_PROHIBIT:
		answer.Error = "refused by a route"
	default:
		answer.Local = routes[0].Type == unix.RTN_LOCAL
		if l := s.LinkIndexed(routes[0].LinkIndex); l != nil {
			answer.Interface = l.Name
		}
		if gateway, valid := netip.AddrFromSlice(routes[0].Gw); valid {
			answer.Gateway = gateway.Unmap()
		}
	}
}

func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno) + ": " + errno.Error()
	}
	return err.Error()
}
