package netinfo

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
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
	return answer
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
