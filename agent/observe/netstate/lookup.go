//go:build linux

package netstate

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Routes looks up routes as the kernel would choose them (RTM_GETROUTE); nothing is sent.
func (r *Reader) Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer {
	if len(questions) == 0 {
		return nil
	}
	answers := make([]check.RouteAnswer, 0, len(questions))
	socket, err := openRouteSocket()
	if err != nil {
		for _, q := range questions {
			answers = append(answers, check.RouteAnswer{RouteQuestion: q, Error: errnoText(err)})
		}
		return answers
	}
	defer socket.close()
	for _, q := range questions {
		answers = append(answers, socket.lookUp(s, q))
	}
	return answers
}

// routeSocket serves many look-ups: opening a netlink socket for each costs more than the answers.
type routeSocket struct {
	handle *netlink.Handle
	// neighbours is for requests for which the library has no method.
	neighbours *nl.NetlinkSocket
}

func openRouteSocket() (*routeSocket, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	neighbours, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &routeSocket{handle: handle, neighbours: neighbours}, nil
}

func (r *routeSocket) close() {
	r.handle.Close()
	r.neighbours.Close()
}

func (r *routeSocket) lookUp(s check.Snapshot, q check.RouteQuestion) check.RouteAnswer {
	answer := check.RouteAnswer{RouteQuestion: q}
	options := &netlink.RouteGetOptions{Mark: q.Mark}
	if q.Source.IsValid() {
		options.SrcAddr = q.Source.AsSlice()
	}
	from := q.Iif
	if q.Forwarded {
		way := r.lookUp(s, check.RouteQuestion{Destination: q.Source})
		if way.Interface == "" || way.Local {
			answer.Error = "no interface leads to " + q.Source.String()
			return answer
		}
		from = way.Interface
		answer.By = way.Interface
	}
	if from != "" {
		l := s.LinkNamed(from)
		if l == nil {
			answer.Error = "there is no interface " + from
			return answer
		}
		options.IifIndex = l.Index
	}
	routes, err := r.handle.RouteGetWithOptions(q.Destination.AsSlice(), options)
	fill(&answer, s, routes, err)
	if q == (check.RouteQuestion{Destination: q.Destination}) &&
		answer.Interface != "" && !answer.Local && !answer.Gateway.IsValid() {
		answer.Pinned = r.pinned(routes[0].LinkIndex, q.Destination)
	}
	return answer
}

// pinned reads one entry of the neighbour table: the hardware address of a permanent one, otherwise nothing.
func (r *routeSocket) pinned(link int, destination netip.Addr) string {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: r.neighbours}}
	family := uint8(nl.GetIPFamily(destination.AsSlice())) //nolint:gosec // AF_INET or AF_INET6
	index := uint32(link)                                  //nolint:gosec // the kernel's numbers are of that size
	request.AddData(&netlink.Ndmsg{Family: family, Index: index})
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
	case routes[0].Type == unix.RTN_BLACKHOLE, routes[0].Type == unix.RTN_UNREACHABLE,
		routes[0].Type == unix.RTN_PROHIBIT:
		answer.Error = "refused by a route"
	default:
		answer.Local = routes[0].Type == unix.RTN_LOCAL
		if l := s.LinkIndexed(routes[0].LinkIndex); l != nil {
			answer.Interface = l.Name
		}
		answer.Gateway = addrOf(routes[0].Gw)
	}
}

func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno) + ": " + errno.Error()
	}
	return err.Error()
}
