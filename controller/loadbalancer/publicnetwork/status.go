package publicnetwork

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Reasons of the condition Ready of a PublicNetwork.
const (
	// ReasonNetworkReady: blocks can be assigned to the network, and servers added.
	ReasonNetworkReady = "NetworkReady"
	// ReasonNetworkNotFound: the account has no network of this ID, or the credentials are those of another account.
	ReasonNetworkNotFound = "NetworkNotFound"
	// ReasonNetworkUnreadable: the network was never read, or not for minutes; says what phoenixNAP answered.
	ReasonNetworkUnreadable = "NetworkUnreadable"
	// ReasonNetworkInError: phoenixNAP has the network in the state ERROR, or gave it a VLAN that nodes cannot use. Ask
	// its support.
	ReasonNetworkInError = "NetworkInError"
	// ReasonNetworkDeleting: phoenixNAP deletes the network. Set the option to another one.
	ReasonNetworkDeleting = "NetworkDeleting"
	// ReasonOtherNetwork: the object is of another network than the option loadbalancer names. Nothing else of it is
	// kept up to date. Set the option to that network, or delete the object, which is then created again.
	ReasonOtherNetwork = "OtherNetwork"
	// ReasonDuplicateID: another object is of the same network. Delete this one.
	ReasonDuplicateID = "DuplicateID"
	// ReasonNotSupported: a network besides that of the option loadbalancer cannot be served with what the object says,
	// or load balancers are off. The message says what to change.
	ReasonNotSupported = "NotSupported"
)

// Reasons of the condition Full of a PublicNetwork.
const (
	// ReasonBlockLimit (True): the network has as many IPv4 blocks as it can have. Share blocks, or release some.
	ReasonBlockLimit = "BlockLimit"
	// ReasonRoom (False): a further block can be assigned.
	ReasonRoom = "Room"
)

// patience is for how long failures to read a network do not matter. What else reads it does so every 75 seconds.
const patience = 3 * time.Minute

// sight is what the process read last of a network. It says nothing before that was requested once.
type sight struct {
	network network.Network
	askedAt time.Time // of the last answer; zero before the first
	err     error     // of the latest request, if it failed
	review  account.Review
}

// seen reports whether there is anything to say of the network.
func (s sight) seen() bool { return !s.askedAt.IsZero() || s.err != nil }

// verdict is a condition without its type.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func no(reason, format string, args ...any) verdict {
	return verdict{metav1.ConditionFalse, reason, text.Message(fmt.Sprintf(format, args...))}
}

// ready says whether a network can be used. That it is BUSY is no trouble: it is while a block is assigned.
func ready(id string, s sight, now time.Time) verdict {
	switch {
	case pnap.IsInaccessible(s.err):
		return no(ReasonNetworkNotFound, "%s", network.Unreadable(id))
	case s.err != nil && now.Sub(s.askedAt) >= patience:
		return no(ReasonNetworkUnreadable, "public network %s: %v; what was read before stays in use", id, s.err)
	case s.network.Status == network.StatusError:
		return no(ReasonNetworkInError, "public network %s is in state ERROR; ask phoenixNAP's support to repair it",
			id)
	case s.network.Status == network.StatusDeleting:
		return no(ReasonNetworkDeleting, "public network %s is being deleted; set the option loadbalancer to another "+
			"one before it is gone", id)
	case s.network.VLAN < 1 || s.network.VLAN > 4094: // 802.1Q
		return no(ReasonNetworkInError, "public network %s has the VLAN %d, which nodes cannot use; ask phoenixNAP's "+
			"support to repair it", id, s.network.VLAN)
	default:
		return verdict{metav1.ConditionTrue, ReasonNetworkReady, "blocks can be assigned, and servers added"}
	}
}

// full says whether a network has room for another IPv4 block.
func full(n network.Network) verdict {
	if n.IPv4Blocks() < network.BlockLimit {
		return no(ReasonRoom, "the network can have %d IPv4 blocks", network.BlockLimit)
	}
	return verdict{metav1.ConditionTrue, ReasonBlockLimit, fmt.Sprintf("the network has %d IPv4 blocks, and can have "+
		"no more; have Services share blocks (%s: %s), or release some", n.IPv4Blocks(), contract.ServiceIPAllocation,
		contract.AllocationShared)}
}

// members counts the Nodes whose servers are members of the network, and those of them that carry traffic.
func members(nodes []*corev1.Node, n network.Network) (all, ready int32) {
	servers := map[string]bool{}
	for _, m := range n.Members {
		servers[m.ServerID] = true
	}
	for _, node := range nodes {
		id, err := contract.ParseProviderID(node.Spec.ProviderID)
		if err != nil || !servers[id] {
			continue
		}
		all++
		if node.Labels[contract.NodeVLANReady] == contract.TagTrue {
			ready++
		}
	}
	return all, ready
}

// refreshAfter is how old a shown time may be, so that readers know that it is current.
const refreshAfter = 5 * time.Minute

// accountRead is the time to show: the last one, unless the shown one is current and nothing has failed since.
func accountRead(shown *metav1.Time, r account.Review) *metav1.Time {
	if r.At.IsZero() || shown != nil && !shown.Time.Before(r.Since.Truncate(time.Second)) && !r.Since.IsZero() &&
		r.At.Sub(shown.Time) < refreshAfter {
		return shown
	}
	return new(metav1.NewTime(r.At.Truncate(time.Second)))
}

// status is what an object of the network of the option says. Until the network was read, its numbers stay.
func status(object *v1beta1.PublicNetwork, s sight, nodes []*corev1.Node, now time.Time) v1beta1.PublicNetworkStatus {
	next := *object.Status.DeepCopy()
	next.AccountReadTime = accountRead(next.AccountReadTime, s.review)
	if !s.seen() {
		return next
	}
	set(&next, object.Generation, v1beta1.ConditionReady, ready(object.Spec.ID, s, now), now)
	if s.askedAt.IsZero() {
		return next
	}
	next.Location = s.network.Location
	next.VLAN = int32(s.network.VLAN)               //nolint:gosec // of the API, which has 12 bits for it
	next.IPv4Blocks = int32(s.network.IPv4Blocks()) //nolint:gosec // of one network
	next.IPv4BlockLimit = network.BlockLimit
	next.Blocks = fmt.Sprintf("%d/%d", next.IPv4Blocks, next.IPv4BlockLimit)
	next.Members, next.ReadyMembers = members(nodes, s.network)
	next.Nodes = fmt.Sprintf("%d/%d", next.ReadyMembers, next.Members)
	set(&next, object.Generation, v1beta1.ConditionFull, full(s.network), now)
	return next
}

// set sets a condition.
func set(s *v1beta1.PublicNetworkStatus, generation int64, kind string, v verdict, now time.Time) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: v.status, Reason: v.reason,
		Message: v.message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)})
}
