package walk

import (
	"cmp"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The second public network of the account.
const (
	west            = "west" // its object
	westID          = "60473c2509268bc77fd06d2b"
	westNodeBlockID = "60473c2509268bc77fd06d42"
	westInterface   = "bond0.21" // on the nodes
)

// westAddress is that of the first server.
var westAddress = netip.MustParseAddr("198.51.100.226")

// openWest has the cluster use the second network, too. The first server is in both networks, the second one only
// there.
func (w *world) openWest() {
	w.inject(classNetworks)
	w.several = true
	w.bringIn(west, "of-the-nodes-in-the-west", westNodeBlockID, v1beta1.PurposeNodes)
	w.createWest()
	w.moveToWest(0)
	if w.nodes > 1 {
		w.moveToWest(1)
		w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Network: networkID, Server: serverID(1)})
	}
}

// announcer is kube-vip, but with several networks in every other walk only.
func (w *world) announcer() string {
	if w.several && w.seed%20 > 9 == (w.seed%10 == 9) {
		return contract.AnnouncerAgent
	}
	return contract.AnnouncerKubeVIP
}

// interfaces is what the agents of all Nodes report of the machine, where kube-vip has to know the interface.
func (w *world) interfaces() map[string]string {
	if !w.several {
		return nil
	}
	return map[string]string{contract.NodeReportedIdentity: `{"hostname":"n","vlanInterfaces":{"` + westID +
		`":{"name":"` + westInterface + `"}}}`}
}

// createWest creates the object of the network, if there is none.
func (w *world) createWest() {
	_, err := w.store.PublicNetworks().Create(w.t.Context(), &v1beta1.PublicNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: west},
		Spec: v1beta1.PublicNetworkSpec{ID: westID, Announcer: announcer.Word(w.announcer()),
			Members: v1beta1.MemberPolicy{Membership: w.westMembership()}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		w.did("PublicNetwork %s is created: %v", west, err)
	}
}

// westMembership has memberships managed where they are in the first network, in every other walk.
func (w *world) westMembership() v1beta1.MembershipPolicy {
	if w.manages && w.seed%10 == 4 {
		return v1beta1.MembershipManage
	}
	return v1beta1.MembershipReport
}

// moveToWest makes a server a member of the second network.
func (w *world) moveToWest(i int) {
	address := westAddress
	for range i {
		address = address.Next()
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddMember, Network: westID, Server: serverID(i),
		IPs: []string{address.String()}})
}

// toWest has some of the Services ask for an address of the second network.
func (w *world) toWest(name string, annotations map[string]string) map[string]string {
	_, chosen := annotations[contract.ServiceNetwork]
	if !w.several || chosen || name != names[1] && name != names[3] {
		return annotations
	}
	asks := map[string]string{contract.ServiceNetwork: west}
	maps.Copy(asks, annotations)
	return asks
}

// networksChange has an administrator, the portal's user, or the author of a Service change what is where.
func (w *world) networksChange() {
	switch w.random.IntN(4) {
	case 0:
		asked := []string{v1beta1.DefaultNetwork, west, "east"}[w.random.IntN(3)]
		w.edit(w.anyName(), "network "+asked, func(s *corev1.Service) {
			s.Annotations[contract.ServiceNetwork] = asked
		})
	case 1:
		err := w.store.PublicNetworks().Delete(w.t.Context(), west, metav1.DeleteOptions{})
		w.did("PublicNetwork %s is deleted: %v", west, err)
		time.AfterFunc(w.upTo(10*time.Minute), w.createWest)
	case 2:
		server := w.random.IntN(w.nodes)
		w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Network: westID, Server: serverID(server)})
		time.AfterFunc(w.upTo(10*time.Minute), func() { w.moveToWest(server) })
	default:
		w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: westID, Status: "BUSY"})
		time.AfterFunc(w.upTo(2*time.Minute), w.westReady)
	}
}

func (w *world) westReady() {
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: westID})
}

// calmWest ends what keeps the second network from serving, or leaves one network where there is no second one.
func (w *world) calmWest() {
	if !w.several {
		return
	}
	time.Sleep(10 * time.Minute) // what was arranged is over
	w.createWest()
	w.westReady()
}

// checkInterface: kube-vip has an address of the second network together with its interface there, and no other one.
func (w *world) checkInterface(object v1beta1.IPBlock) {
	if object.Spec.ServiceRef == nil {
		return
	}
	s, err := w.kube.CoreV1().Services(object.Spec.ServiceRef.Namespace).Get(w.t.Context(),
		object.Spec.ServiceRef.Name, metav1.GetOptions{})
	if err != nil || s.UID != object.Spec.ServiceRef.UID || s.Annotations[contract.KubeVIPAddresses] == "" {
		return
	}
	in := object.Spec.Attachment.Name == west
	if (s.Annotations[contract.KubeVIPInterface] == westInterface) != in {
		w.fail("Service %s is in the second network: %t, and kube-vip announces it on %q", s.Name, in,
			s.Annotations[contract.KubeVIPInterface])
	}
}

// checkNetworks: at rest each block is assigned to the public network that its object names.
func (w *world) checkNetworks() {
	at := map[string]string{}
	for _, raw := range w.sim.State(accountID).Blocks {
		at[text(raw["id"])] = text(raw["assignedResourceId"])
	}
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	ids := map[string]string{v1beta1.DefaultNetwork: networkID, west: westID}
	for _, object := range list.Items {
		w.checkInterface(object)
		where := at[object.Spec.BlockID]
		if want := ids[cmp.Or(object.Spec.Attachment.Name, v1beta1.DefaultNetwork)]; where != "" && where != want {
			w.fail("IPBlock %s is of network %s, and its block is assigned to %s", object.Name,
				object.Spec.Attachment.Name, where)
		}
	}
}
