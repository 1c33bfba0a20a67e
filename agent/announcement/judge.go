package announcement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// The checks of this group. They continue the catalogue of package check.
const (
	AddressAnswers  check.ID = "PN601"
	SingleAnswer    check.ID = "PN604"
	RightInterface  check.ID = "PN605"
	ReturnByNetwork check.ID = "PN606"
)

// Reasons of the condition AnnouncementHealthy.
const (
	ReasonAnswered         = "Answered"
	ReasonNothingAnnounced = "NothingAnnounced"
	ReasonNoAnswer         = "NoAnswer"
	ReasonDuplicate        = "DuplicateAnswer"
	ReasonWrongInterface   = "WrongInterface"
	ReasonReturnPath       = "ReturnPathElsewhere"
	ReasonVLANNotReady     = "VLANNotReady"
	ReasonNotAsked         = "NotAsked"
	ReasonConfirming       = "Confirming"
)

// ipvsInterface holds every service address on every node with kube-proxy in IPVS mode; it announces nothing.
const ipvsInterface = "kube-ipvs0"

// Observation is what one node saw of one address.
type Observation struct {
	Target
	// Interface is the name of the VLAN interface.
	Interface string
	// Held names the interfaces of this node that carry the address.
	Held []string
	// MACs of other machines that claimed the address, sorted.
	MACs []string
	// Replied tells whether another machine replied to the request.
	Replied bool
	// ReturnBy is the interface by which this node would send a reply from the address; looked up only where the address
	// is held, else empty.
	ReturnBy string
	// Error says why the question could not be put; empty when it was.
	Error string
}

// Judge says what an observation means. An address that this node holds counts as answered by it: the kernel answers for
// addresses of its own, and a machine never hears its own reply.
func Judge(o Observation) check.Finding {
	held := slices.DeleteFunc(slices.Clone(o.Held), func(name string) bool { return name == ipvsInterface })
	here := slices.Contains(held, o.Interface)
	switch {
	case o.Error != "":
		f := o.finding(AddressAnswers, check.Unknown, ReasonNotAsked, o.Error)
		f.Cause = o.String() + " could not be asked for: " + o.Error
		return f
	case len(o.MACs) > 1, len(held) > 0 && len(o.MACs) > 0:
		return o.duplicate(held)
	case len(held) > 0 && !here:
		return o.wrongInterface(held)
	case here && o.ReturnBy != "" && o.ReturnBy != o.Interface:
		return o.returnElsewhere()
	case here:
		return o.finding(AddressAnswers, check.OK, ReasonAnswered, "held by this node on "+o.Interface)
	case o.Replied:
		return o.finding(AddressAnswers, check.OK, ReasonAnswered, "answered by "+strings.Join(o.MACs, ", "))
	default:
		return o.silent()
	}
}

// Unasked are the findings for addresses that cannot be asked for, because the node's own way to the network is broken: a
// consequence, to be passed over for its cause. broken is false where nothing keeps the node from asking.
func Unasked(report check.Report, targets []Target) (findings []check.Finding, broken bool) {
	address := report.Finding(check.NodeAddress)
	because := address.Because
	switch address.Status {
	case check.OK, check.Warn:
		return nil, false
	case check.Fail, check.Unknown:
		because = "because of " + string(check.NodeAddress)
	case check.Skip:
	default:
	}
	for _, t := range targets {
		f := Observation{Target: t}.finding(AddressAnswers, check.Skip, "", "")
		f.Because = because
		findings = append(findings, f)
	}
	return findings, true
}

// String names the address and its Service.
func (o Observation) String() string { return fmt.Sprintf("%s (Service %s)", o.Address, o.Service) }

func (o Observation) finding(id check.ID, status check.Status, reason, observed string) check.Finding {
	title := map[check.ID]string{
		AddressAnswers: "a node answers for ", SingleAnswer: "one node alone answers for ",
		RightInterface: "the VLAN interface carries ", ReturnByNetwork: "replies leave by the VLAN interface from ",
	}[id]
	return check.Finding{
		ID: id, Title: title + o.String(), Status: status, Severity: check.Error, Reason: reason, Observed: observed,
		Wire: true, Doc: "docs/reference/findings.md#" + strings.ToLower(string(id)),
	}
}

func (o Observation) duplicate(held []string) check.Finding {
	claimants := slices.Clone(o.MACs)
	if len(held) > 0 {
		claimants = append([]string{"this node (" + strings.Join(held, ", ") + ")"}, claimants...)
	}
	f := o.finding(SingleAnswer, check.Fail, ReasonDuplicate, strings.Join(claimants, " and "))
	f.Expected = "one machine"
	f.Cause = fmt.Sprintf("%s is answered by %s", o, strings.Join(claimants, " and "))
	f.Fixes = []check.Fix{{
		Tool: check.AnyTool, Commands: []string{fmt.Sprintf("ip address delete %s/32 dev %s", o.Address, o.Interface)},
		Note: "on the node that does not announce it: kube-vip, when it is killed, leaves the address behind; the holder is named by the Service's annotation kube-vip.io/vipHost",
	}}
	return f
}

func (o Observation) wrongInterface(held []string) check.Finding {
	f := o.finding(RightInterface, check.Fail, ReasonWrongInterface, "on "+strings.Join(held, ", "))
	f.Expected = "on " + o.Interface
	f.Cause = fmt.Sprintf("%s is on %s of this node instead of %s", o, strings.Join(held, ", "), o.Interface)
	f.Fixes = []check.Fix{{Tool: check.AnyTool, Note: fmt.Sprintf(
		"set kube-vip's vip_servicesinterface to %s (its default is the interface of the default route) and restart it", o.Interface)}}
	return f
}

func (o Observation) returnElsewhere() check.Finding {
	f := o.finding(ReturnByNetwork, check.Fail, ReasonReturnPath, "by "+o.ReturnBy)
	f.Expected = "by " + o.Interface
	f.Cause = fmt.Sprintf("this node holds %s, but would send its replies by %s instead of %s", o, o.ReturnBy, o.Interface)
	f.Fixes = []check.Fix{{Tool: check.AnyTool, Note: "make the gateway of the public network the node's default gateway, or route by source and by connection mark; see " +
		"docs/reference/findings.md#pn501"}}
	return f
}

func (o Observation) silent() check.Finding {
	f := o.finding(AddressAnswers, check.Fail, ReasonNoAnswer, "no reply to ARP requests on "+o.Interface)
	f.Expected = "a reply by the node that announces it"
	f.Cause = fmt.Sprintf("nobody answers for %s on %s", o, o.Interface)
	f.Fixes = []check.Fix{{
		Tool: check.AnyTool,
		Commands: []string{
			"kubectl --namespace kube-system get pods --output wide --selector app.kubernetes.io/name=kube-vip",
			"kubectl get nodes --label-columns phoenixnap.com/vlan-ready",
		},
		Note: "kube-vip must run on a node that is ready for the public network, and the Service must have endpoints",
	}}
	return f
}
