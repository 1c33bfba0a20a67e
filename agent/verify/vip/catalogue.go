package vip

import (
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// The checks of this group. They continue the catalogue of package check.
const (
	AddressAnswers  check.ID = "PN601"
	HolderAnswers   check.ID = "PN602"
	NothingStale    check.ID = "PN603"
	SingleAnswer    check.ID = "PN604"
	RightInterface  check.ID = "PN605"
	ReturnByNetwork check.ID = "PN606"
	RightNode       check.ID = "PN607"
	OwnMachine      check.ID = "PN608"
	LeaseAlive      check.ID = "PN609"
)

// Reasons of the condition AnnouncementHealthy.
const (
	// ReasonAnswered: every address that concerns this node answers as it should.
	ReasonAnswered = "Answered"
	// ReasonNothingAnnounced: no Service has a published address.
	ReasonNothingAnnounced = "NothingAnnounced"
	// ReasonNoAnswer: no machine answers for an address.
	ReasonNoAnswer = "NoAnswer"
	// ReasonNoEndpoints: no machine answers for an address, because its Service has no endpoints. A warning.
	ReasonNoEndpoints = "NoEndpoints"
	// ReasonHolderSilent: the node that holds the lease of an address does not answer for it.
	ReasonHolderSilent = "HolderSilent"
	// ReasonStaleAddress: this node carries an address that it does not announce.
	ReasonStaleAddress = "StaleAddress"
	// ReasonDuplicate: two machines answer for an address.
	ReasonDuplicate = "DuplicateAnswer"
	// ReasonWrongInterface: this node carries an address on another interface than that of the VLAN.
	ReasonWrongInterface = "WrongInterface"
	// ReasonReturnPath: replies from an address would leave by another network.
	ReasonReturnPath = "ReturnPathElsewhere"
	// ReasonWrongNode: another node answers than the one that holds the lease.
	ReasonWrongNode = "WrongNode"
	// ReasonForeignOwner: a machine answers that is not a Node of the cluster.
	ReasonForeignOwner = "ForeignOwner"
	// ReasonLeaseExpired: an address answers, but its lease is not renewed.
	ReasonLeaseExpired = "LeaseExpired"
	// ReasonLeaseMissing: an address answers, but it has no lease. A warning.
	ReasonLeaseMissing = "LeaseMissing"
	// ReasonVLANNotReady: the VLAN is not ready, so the addresses cannot be checked.
	ReasonVLANNotReady = "VLANNotReady"
	// ReasonNotAsked: the ARP request could not be sent.
	ReasonNotAsked = "NotAsked"
	// ReasonNoKey: with agent://, the agent has no key to sign its heartbeats with, so it announces nothing. Check that
	// the Secret kube-system/phoenixnap-announcer exists, and that the agent may read it.
	ReasonNoKey = "NoHeartbeatKey"
	// ReasonConfirming: a second sample must confirm the first.
	ReasonConfirming = "Confirming"
)

// Catalogue declares the checks of an address of a Service; Evaluate returns one finding for each address.
func Catalogue() []check.Check { return slices.Clone(catalogue) }

var catalogue = []check.Check{
	{
		ID: AddressAnswers, Title: "a node answers for the address of a Service", Severity: check.Error, Wire: true,
		Meaning: "A machine answers ARP requests for the address of a Service on the VLAN interface.",
		Causes: []string{"kube-vip does not run on any node that is ready for the public network.",
			"The Service has no endpoints: kube-vip 1.2 and newer announces an address only while there are some, and " +
				"with `externalTrafficPolicy: Local` any kube-vip only on nodes with a serving one.",
			"kube-vip is configured for another load balancer class (`lb_class_name`)."},
		Remedy: "Check that kube-vip runs on a node with the label `phoenixnap.com/vlan-ready`, and that the Service " +
			"has endpoints: `kubectl get endpointslices --selector kubernetes.io/service-name=<service>`. If the " +
			"controller finds none, this is a warning with the reason `NoEndpoints`.",
		Reasons: []string{ReasonNoAnswer, ReasonNoEndpoints, ReasonNotAsked},
	},
	{
		ID: HolderAnswers, Title: "the holder of the lease answers for the address of a Service",
		Severity: check.Error, Wire: true,
		Meaning: "The node that holds kube-vip's lease for the Service answers for its address. kube-vip only " +
			"watches its lease, not whether the network receives its answers.",
		Causes: []string{"The kernel of that node does not answer: `arp_ignore`, `arp_filter`, or a firewall for ARP.",
			"The address was removed from the interface by hand or by a reconfiguration of the network.",
			"The node's VLAN is broken, but the node still reaches the API server."},
		Remedy: "Run `phoenixnap-agent diagnose` on the holder. Restarting kube-vip there adds the address again; " +
			"stopping it there moves the address to another node.",
		Reasons: []string{ReasonHolderSilent},
	},
	{
		ID: NothingStale, Title: "this node carries no address that it does not announce", Severity: check.Error,
		Meaning: "No interface of the node carries the address of a Service whose lease another node holds, or that " +
			"no Service has any more. The kernel answers for whatever address it carries.",
		Causes: []string{"kube-vip was killed: it removes addresses only when it shuts down cleanly.",
			"The address was added by hand."},
		Remedy:  "Delete the address from the interface: `ip address delete <address>/32 dev <interface>`.",
		Reasons: []string{ReasonStaleAddress},
	},
	{
		ID: SingleAnswer, Title: "only one machine answers for the address of a Service", Severity: check.Error,
		Wire:    true,
		Meaning: "Exactly one machine answers for the address. Two machines that answer take traffic from each other.",
		Causes: []string{"kube-vip was killed on a node and left its address behind.",
			"Two elections run at the same time: kube-vip is installed twice, or with different settings of " +
				"`svc_election`."},
		Remedy: "Delete the address on the node that does not hold the lease; the finding PN603 of that node shows " +
			"which node it is.",
		Reasons: []string{ReasonDuplicate},
	},
	{
		ID: RightInterface, Title: "the VLAN interface carries the address of a Service", Severity: check.Error,
		Meaning: "The node that holds the address of a Service has it on the VLAN interface.",
		Causes: []string{"kube-vip's interface is not set, so it uses the interface of the default route.",
			"The annotation `kube-vip.io/serviceInterface` of the Service names another interface. kube-vip reads " +
				"this annotation only when it starts."},
		Remedy: "Set `vip_interface` (and `vip_servicesinterface` where it is used) of kube-vip, or the annotation, " +
			"to the VLAN interface and restart kube-vip on that node.",
		Reasons: []string{ReasonWrongInterface},
	},
	{
		ID: ReturnByNetwork, Title: "replies from the address of a Service leave by the VLAN interface",
		Severity: check.Error,
		Meaning:  "The node that holds the address of a Service would send its replies by the VLAN interface.",
		Causes: []string{"The default route leaves by another network, and no rule sends what comes from the block " +
			"back through it."},
		Remedy: "Make the gateway of the public network the default gateway, or let the agent keep the routes with " +
			"`--manage=return-path`; see PN501.",
		Reasons: []string{ReasonReturnPath},
	},
	{
		ID: RightNode, Title: "no other node answers for the address of a Service", Severity: check.Error,
		Wire:    true,
		Meaning: "The node that answers for the address of a Service is the one that holds kube-vip's lease for it.",
		Causes:  []string{"A node kept the address when it lost the lease, and the new holder could not add it."},
		Remedy:  "Delete the address on the node that answers; the finding PN603 of that node has the command.",
		Reasons: []string{ReasonWrongNode},
	},
	{
		ID: OwnMachine, Title: "a Node of the cluster answers for the address of a Service",
		Severity: check.Error, Wire: true,
		Meaning: "The hardware address that answers belongs to a Node: one that an agent reported in " +
			"`phoenixnap.com/reported-identity`.",
		Causes: []string{"Another machine in the public network was given the address by hand.",
			"A server that was taken out of the cluster still runs and kept the address.",
			"No agent runs on the Node that answers."},
		Remedy:  "Find the server with that hardware address in phoenixNAP's portal and remove the address from it.",
		Reasons: []string{ReasonForeignOwner},
	},
	{
		ID: LeaseAlive, Title: "kube-vip's lease for the Service is alive", Severity: check.Error, Wire: true,
		Meaning: "kube-vip renews its lease for a Service whose address answers. Without renewal the kernel still " +
			"answers, but no other node takes over when this node fails. The check warns if the lease does not exist.",
		Causes: []string{"kube-vip was killed or stopped on the node that answers, and runs on no other.",
			"kube-vip cannot reach the API server.",
			"kube-vip runs in another namespace than `--kube-vip-namespace` of the agent, or gives its lease for all " +
				"Services another name than `--kube-vip-lease` (its option `svc_leasename`), or uses etcd for its " +
				"elections."},
		Remedy:  "Check that kube-vip runs on the node that answers, and read its log.",
		Reasons: []string{ReasonLeaseExpired, ReasonLeaseMissing},
	},
}

// declared returns the declaration of a check.
func declared(id check.ID) check.Check {
	return catalogue[slices.IndexFunc(catalogue, func(c check.Check) bool { return c.ID == id })]
}
