package check

import "strings"

// Check is one entry of the catalogue.
type Check struct {
	ID       ID
	Title    string
	Severity Severity
	// DependsOn names the checks without which this one has no meaning.
	DependsOn []ID
	// Wire tells that the evidence comes from other machines' answers.
	Wire  bool
	judge func(view) outcome
}

// The checks. A number is never used again for something else.
const (
	NetworkPublished ID = "PN000"
	Membership       ID = "PN001"
	BlockAssigned    ID = "PN002"
	UplinkUp         ID = "PN101"
	VLANInterface    ID = "PN102"
	VLANUp           ID = "PN103"
	BondHealthy      ID = "PN104"
	MTU              ID = "PN105"
	NodeAddress      ID = "PN201"
	NoDuplicate      ID = "PN202"
	GatewayAnswers   ID = "PN301"
	ReversePath      ID = "PN401"
	ARPAnswering     ID = "PN402"
	ARPSource        ID = "PN403"
	StrictARP        ID = "PN404"
	Forwarding       ID = "PN405"
	ProxyARP         ID = "PN406"
	ReturnPath       ID = "PN501"
)

// Catalogue lists all checks in the order in which they are judged: causes before consequences.
func Catalogue() []Check {
	return []Check{
		{ID: NetworkPublished, Title: "the controller has published the public network", Severity: Error, judge: judgePublished},
		{ID: Membership, Title: "the server is a member of the public network", Severity: Error,
			DependsOn: []ID{NetworkPublished}, judge: judgeMembership},
		{ID: BlockAssigned, Title: "an IP block is assigned to the public network", Severity: Warning,
			DependsOn: []ID{NetworkPublished}, judge: judgeBlocks},
		{ID: UplinkUp, Title: "the uplink is there and up", Severity: Error,
			DependsOn: []ID{NetworkPublished}, judge: judgeUplink},
		{ID: VLANInterface, Title: "the VLAN interface exists on the uplink", Severity: Error,
			DependsOn: []ID{NetworkPublished, UplinkUp}, judge: judgeVLAN},
		{ID: VLANUp, Title: "the VLAN interface is up", Severity: Error,
			DependsOn: []ID{VLANInterface}, judge: judgeVLANUp},
		{ID: BondHealthy, Title: "the bond has all its members", Severity: Warning,
			DependsOn: []ID{UplinkUp}, judge: judgeBond},
		{ID: MTU, Title: "the MTU suits the Internet", Severity: Warning,
			DependsOn: []ID{VLANInterface}, judge: judgeMTU},
		{ID: NodeAddress, Title: "the node has its own address on the VLAN interface", Severity: Error,
			DependsOn: []ID{VLANUp}, judge: judgeAddress},
		{ID: NoDuplicate, Title: "nobody else uses the node's address", Severity: Error, Wire: true,
			DependsOn: []ID{NodeAddress}, judge: judgeDuplicate},
		{ID: GatewayAnswers, Title: "the gateway answers", Severity: Error, Wire: true,
			DependsOn: []ID{Membership, NodeAddress}, judge: judgeGateway},
		{ID: ReversePath, Title: "the reverse path filter lets service traffic in", Severity: Error,
			DependsOn: []ID{VLANInterface}, judge: judgeReversePath},
		{ID: ARPAnswering, Title: "the kernel answers ARP for service addresses", Severity: Error,
			DependsOn: []ID{VLANInterface}, judge: judgeARPAnswering},
		{ID: ARPSource, Title: "the kernel asks by ARP with an address of the link", Severity: Warning,
			DependsOn: []ID{VLANInterface}, judge: judgeARPSource},
		{ID: StrictARP, Title: "kube-proxy's IPVS does not answer for service addresses", Severity: Error,
			DependsOn: []ID{VLANInterface}, judge: judgeStrictARP},
		{ID: Forwarding, Title: "the node forwards packets to pods", Severity: Error,
			DependsOn: []ID{NetworkPublished}, judge: judgeForwarding},
		{ID: ProxyARP, Title: "the node does not answer for foreign addresses", Severity: Warning,
			DependsOn: []ID{VLANInterface}, judge: judgeProxyARP},
		{ID: ReturnPath, Title: "replies leave by the VLAN interface", Severity: Warning,
			DependsOn: []ID{NodeAddress}, judge: judgeReturnPath},
	}
}

func (c Check) finding() Finding {
	return Finding{
		ID: c.ID, Title: c.Title, Severity: c.Severity, Wire: c.Wire, DependsOn: c.DependsOn,
		Doc: "docs/reference/findings.md#" + strings.ToLower(string(c.ID)),
	}
}
