//go:build linux

package faults

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// annotate overwrites what the controller has published on the Node.
func annotate(value string) action {
	return func(ctx context.Context, s *site) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, contract.NodePublicNetworkVLAN, value)
		_, err := s.cluster.Kube.CoreV1().Nodes().Patch(ctx, s.server.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("annotate Node %s: %w", s.server.Name, err)
		}
		return nil
	}
}

// instanceData is what cloud-init leaves on a server that was installed from the image of another one.
func instanceData(ctx context.Context, s *site) error {
	data := fmt.Appendf(nil, `{"v1":{"instance_id":%q,"local_hostname":%q}}`, s.neighbour.ID, s.server.Name)
	return s.cluster.Lab.WriteHostFile(ctx, s.server.Name, "/run/cloud-init/instance-data.json", data, 0o644)
}

func publishedFaults() []Fault {
	return []Fault{
		{Name: "published network unreadable", ID: "PN000", Reason: "NetworkUnreadable", Told: ByCondition,
			make: annotate("fifty-six"), mend: annotate(fmt.Sprint(cluster.VLAN))},
		{Name: "server with the identity of another", ID: "PN003", Reason: "OtherServer", Told: ByDiagnosis,
			make: instanceData, mend: here("rm /run/cloud-init/instance-data.json")},
		{Name: "server taken out of the network", ID: "PN001", Reason: "NotAMember", Told: ByCondition, Slow: true,
			make: portal(func(s *site) pnapsim.Edit {
				return pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: s.server.ID, Network: cluster.NetworkID}
			}),
			mend: portal(func(s *site) pnapsim.Edit {
				return pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: s.server.ID, Network: cluster.NetworkID,
					IPs: []string{s.server.Public.Addr().String()}}
			})},
	}
}

func networkFaults() []Fault {
	const silent = "GatewaySilent"
	return []Fault{
		{Name: "VLAN closed on the port of the server", ID: "PN301", Reason: silent, Told: ByCondition, Short: true,
			make: onSwitch("bridge vlan delete dev p-$SERVER vid 56"),
			mend: onSwitch("bridge vlan add dev p-$SERVER vid 56")},
		{Name: "gateway gone", ID: "PN301", Reason: silent, Told: ByCondition, Alone: true,
			make: atGateway("ip address delete $GATEWAY/$BITS dev eth0.56"),
			mend: atGateway("ip address add $GATEWAY/$BITS dev eth0.56")},
		{Name: "another server answers for the gateway", ID: "PN302", Reason: "GatewayAnsweredTwice", Told: ByMetric,
			Status: check.Warn, Alone: true,
			make: nextDoor("ip address add $GATEWAY/32 dev bond0.56"),
			mend: nextDoor("ip address delete $GATEWAY/32 dev bond0.56")},
		{Name: "server holds the address of the gateway", ID: "PN302", Reason: "GatewayHeldHere", Told: ByCondition,
			Event: true, Alone: true,
			make: here("ip address add $GATEWAY/32 dev bond0.56"),
			mend: here("ip address delete $GATEWAY/32 dev bond0.56")},
		{Name: "gateway slow", ID: "PN303", Reason: "GatewaySlow", Told: ByMetric, Status: check.Warn, Alone: true,
			make: atGateway("tc qdisc add dev eth0.56 root netem delay 150ms"),
			mend: atGateway("tc qdisc delete dev eth0.56 root")},
	}
}
