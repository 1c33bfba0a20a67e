package overview

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

const serverID = "5fa54d1e91867c03a0a7b4a4"

// sound returns the facts of a cluster without a problem.
func sound() Facts {
	annotations := nodenet.On(contract.NodeNetwork{ServerID: serverID, ID: "60473c2509268bc77fd06d29", VLAN: 20,
		Member: true, Announcer: contract.AnnouncerKubeVIP})
	node := func(name string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: corev1.NodeSpec{ProviderID: contract.ProviderID(serverID)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "Ready"},
				{Type: contract.ConditionAnnouncementHealthy, Status: corev1.ConditionTrue, Reason: "Answered"},
			}}}
	}
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
		Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.2"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: contract.ServiceConditionBlockAssigned, Status: metav1.ConditionTrue},
			{Type: contract.ServiceConditionAddressPublished, Status: metav1.ConditionTrue},
			{Type: contract.ServiceConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Answered"},
		}}}
	return Facts{
		Now: now, Nodes: []corev1.Node{node("worker-1"), node("worker-2")}, Services: []corev1.Service{service},
		Networks: accountRead(time.Minute), Leader: leaseOf("ccm-0", time.Second),
		Pods: []corev1.Pod{podOf(controllerApp, "ccm-0", ""), podOf(agentApp, "agent-1", "worker-1"),
			podOf(agentApp, "agent-2", "worker-2")},
	}
}

// accountRead is the public network of a controller that read the account some time ago.
func accountRead(ago time.Duration) []v1beta1.PublicNetwork {
	return []v1beta1.PublicNetwork{{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.DefaultNetwork},
		Status: v1beta1.PublicNetworkStatus{AccountReadTime: ptr.To(metav1.NewTime(now.Add(-ago)))}}}
}

// orphaned is an IPBlock that is paid for and not used.
func orphaned(name string) v1beta1.IPBlock {
	return v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.IPBlockSpec{BlockID: "b"},
		Status: v1beta1.IPBlockStatus{Conditions: []metav1.Condition{{Type: v1beta1.ConditionOrphaned,
			Status: metav1.ConditionTrue, Reason: v1beta1.OrphanedServiceGone, Message: "delete its IPBlock",
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}}}
}

func leaseOf(holder string, age time.Duration) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(now.Add(-age))
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed,
		LeaseDurationSeconds: ptr.To(int32(15))}}
}

// podOf returns a pod that runs.
func podOf(app, name, node string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name,
		Labels: map[string]string{podLabel: app}}, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
}

// waitsFor makes the container of a pod wait.
func waitsFor(p *corev1.Pod, reason, message string) {
	p.Status.Phase = corev1.PodPending
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "registry/image:v2",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
}

// withoutAgent removes what an agent reported.
func withoutAgent(f *Facts, pods ...corev1.Pod) {
	for i := range f.Nodes {
		f.Nodes[i].Status.Conditions = nil
	}
	f.Pods = append([]corev1.Pod{f.Pods[0]}, pods...)
}

func taint(f *Facts) {
	for i := range f.Nodes {
		f.Nodes[i].Spec = corev1.NodeSpec{Taints: []corev1.Taint{{Key: taintUninitialized}}}
		f.Nodes[i].Annotations = nil
	}
}

// mistakes are those of the first day, and what the first problem says then; none of the others may come before it.
var mistakes = map[string]struct {
	make  func(*Facts)
	kinds []Kind
	first []string
}{
	"nothing is wrong": {func(*Facts) {}, nil, nil},
	"the API server does not answer": {func(f *Facts) { *f = Facts{Unreachable: "connection refused", Unread: Parts()} },
		[]Kind{KindAPIServer}, []string{"The API server cannot be asked", "connection refused", "--kubeconfig"}},
	"the controller is not installed": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		f.Pods = f.Pods[1:]
		taint(f)
	}, []Kind{KindController, KindWaiting},
		[]string{"none has ever led", "No pod of it exists in kube-system", "kubectl -n kube-system describe"}},
	"the image of the controller is not pulled": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		waitsFor(&f.Pods[0], "ImagePullBackOff", "manifest unknown")
	}, []Kind{KindController}, []string{"ccm-0", "registry/image:v2", "is not pulled", "manifest unknown"}},
	"the name of the image is invalid": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		waitsFor(&f.Pods[0], "InvalidImageName", "couldn't parse image name")
	}, []Kind{KindController}, []string{"is not pulled", "couldn't parse"}},
	"the Secret of the controller is missing": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		waitsFor(&f.Pods[0], "ContainerCreating", "")
	}, []Kind{KindController}, []string{"such as its Secret, may be missing", "describe pod ccm-0"}},
	"an option of the controller is wrong": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		waitsFor(&f.Pods[0], "CrashLoopBackOff", "back-off")
		f.Pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated =
			&corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
	}, []Kind{KindController}, []string{"ended with code 1 (Error)", "logs ccm-0 --previous"}},
	"no node takes the controller": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		f.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}}
	}, []Kind{KindController}, []string{"not scheduled: 0/2 nodes are available"}},
	"no replica renews the Lease": {func(f *Facts) { f.Leader = leaseOf("ccm-0", time.Hour) }, []Kind{KindController},
		[]string{"ccm-0 has not renewed Lease kube-system/phoenixnap-cloud-controller-manager for 60m",
			"runs, and does not lead", "logs ccm-0"}},
	"leader election is off": {func(f *Facts) { f.Leader = nil }, nil, nil},
	"an evicted pod remains": {func(f *Facts) {
		evicted := podOf(controllerApp, "a", "")
		evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		f.Pods = append(f.Pods, evicted)
	}, nil, nil},
	"the controller serves Nodes only, another load balancer the Services": {func(f *Facts) {
		for i := range f.Nodes {
			f.Nodes[i].Annotations = map[string]string{contract.NodeServerID: serverID,
				contract.NodePublicNetworks: "[]"}
		}
		f.Networks = nil
		f.Services[0].Status.Conditions = nil
		withoutAgent(f)
	}, nil, nil},
	"no replica leads": {func(f *Facts) { f.Leader = leaseOf("", time.Minute) }, []Kind{KindController},
		[]string{"no replica has held Lease"}},
	"no controller, and pods may not be listed": {func(f *Facts) {
		f.Leader = nil
		f.Networks = nil
		f.Unread = []Part{PartPods}
		f.Unreadable = []string{"Pods cannot be shown"}
		f.Pods = nil
	}, []Kind{KindController, KindUnreadable}, []string{"Why is unknown"}},
	"the credentials are wrong": {func(f *Facts) {
		f.Networks = nil
		f.Events = unreadable(5*time.Minute, "401; check the client ID and the client secret")
		taint(f)
	}, []Kind{KindAccount, KindWaiting}, []string{"check the client ID", "(reported 5m ago)"}},
	"the account was read before": {func(f *Facts) {
		f.Networks = accountRead(2 * time.Minute)
		f.Events = append(unreadable(time.Minute, "404"), unreadable(time.Hour, "401")...)
	}, []Kind{KindAccount}, []string{"404 (reported 60s ago)"}},
	"the account was read again": {func(f *Facts) {
		f.Networks = accountRead(time.Minute)
		f.Events = unreadable(2*time.Minute, "404")
	}, nil, nil},
	"the controller does not read the account": {func(f *Facts) { f.Networks = accountRead(time.Hour) },
		[]Kind{KindStale}, []string{"No controller has read the account for 60m"}},
	"Nodes wait for initialization": {taint, []Kind{KindWaiting},
		[]string{"2 Nodes (worker-1, worker-2) wait for initialization", "kubectl describe node worker-1"}},
	"kubelets without --cloud-provider=external": {func(f *Facts) { f.Nodes[0].Spec.ProviderID = "" },
		[]Kind{KindServer}, []string{"Node worker-1 has no provider ID and no taint", "--cloud-provider=external"}},
	"another provider initialized the Nodes": {func(f *Facts) { f.Nodes[0].Spec.ProviderID = "k3s://worker-1" },
		[]Kind{KindServer}, []string{"Node worker-1 has the provider ID of another provider"}},
	"no agents are installed": {func(f *Facts) { withoutAgent(f) }, []Kind{KindAgent},
		[]string{"2 Nodes (worker-1, worker-2)", "no pod of it exists", "describe daemonset phoenixnap-agent"}},
	"the image of the agents is not pulled": {func(f *Facts) {
		pods := f.Pods[1:]
		waitsFor(&pods[0], "ErrImagePull", "not found")
		waitsFor(&pods[1], "ErrImagePull", "not found")
		withoutAgent(f, pods...)
	}, []Kind{KindAgent}, []string{"2 Nodes", "pods of DaemonSet phoenixnap-agent", "registry/image:v2 is not pulled"}},
	"one node has no agent": {func(f *Facts) {
		f.Nodes[1].Status.Conditions = nil
		f.Pods = f.Pods[:2]
	}, []Kind{KindAgent}, []string{"Node worker-2", "no pod of it is there"}},
	"an agent stopped": {func(f *Facts) {
		f.Nodes[1].Status.Conditions[0] = corev1.NodeCondition{Type: contract.ConditionVLANReady, Status: "Unknown",
			Reason: agentSilent}
		waitsFor(&f.Pods[2], "CrashLoopBackOff", "")
	}, []Kind{KindAgent}, []string{"Node worker-2", "ends again and again", "logs agent-2"}},
	"a node is down": {func(f *Facts) {
		f.Nodes[1].Status.Conditions[0] = corev1.NodeCondition{Type: contract.ConditionVLANReady, Status: "Unknown",
			Reason: nodeUnreachable}
	}, []Kind{KindAgent}, []string{"the node is down or cut off"}},
	"a node of another operating system": {func(f *Facts) {
		f.Nodes[1].Labels = map[string]string{corev1.LabelOSStable: "windows"}
		f.Nodes[1].Status.Conditions = nil
	}, nil, nil},
	"one of two replicas does not start": {func(f *Facts) {
		second := podOf(controllerApp, "ccm-1", "")
		waitsFor(&second, "ImagePullBackOff", "")
		f.Pods = append(f.Pods, second)
	}, []Kind{KindReplica}, []string{"pod kube-system/ccm-1", "is not pulled"}},
	"the VLAN is broken": {func(f *Facts) {
		f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
		f.Nodes[0].Status.Conditions[0].Message = "PN103: bond0.20 is down"
		f.Nodes[0].Status.Conditions[1].Status = corev1.ConditionUnknown
	}, []Kind{KindVLAN}, []string{"Node worker-1: PN103: bond0.20 is down (kubectl pnap diagnose node worker-1)"}},
	"an address does not answer": {func(f *Facts) {
		f.Nodes[0].Status.Conditions[1].Status = corev1.ConditionFalse
		f.Services[0].Status.Conditions[2].Status = metav1.ConditionFalse
	}, []Kind{KindAddresses, KindService}, []string{"Node worker-1: Answered"}},
	"another cluster has the key": {func(f *Facts) {
		for i := range f.Nodes {
			f.Nodes[i].Status.Conditions[1].Reason = "HeartbeatKeyShared"
		}
	}, []Kind{KindKeyShared}, []string{"drop heartbeats", "replace the key", "kube-system/phoenixnap-announcer"}},
	"the public network is gone": {func(f *Facts) {
		f.Networks[0].Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady,
			Status: metav1.ConditionFalse, Message: "the account has no such network"}}
	}, []Kind{KindNetwork}, []string{"PublicNetwork default: the account has no such network"}},
	"an IPBlock is an orphan": {func(f *Facts) { f.Blocks = []v1beta1.IPBlock{orphaned("block-b")} },
		[]Kind{KindBlocks}, []string{"IPBlock block-b is paid for but unused: delete its IPBlock"}},
	"two are": {func(f *Facts) { f.Blocks = []v1beta1.IPBlock{orphaned("block-a"), orphaned("block-b")} },
		[]Kind{KindBlocks}, []string{"2 IP blocks are paid for but unused (kubectl describe ipb): block-a, block-b"}},
	"an orphan that is being deleted": {func(f *Facts) {
		f.Blocks = []v1beta1.IPBlock{orphaned("block-b")}
		f.Blocks[0].DeletionTimestamp = ptr.To(metav1.NewTime(now))
	}, nil, nil},
	"a block without an IPBlock is not used": {func(f *Facts) {
		f.Events = []corev1.Event{{LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			Reason: contract.OrphanedIPBlock, Message: "IP block b: its tags do not say what for"}}
	}, []Kind{KindBlocks}, []string{"IP block b: its tags do not say what for (reported 60s ago)"}},
	"a Service that no controller has seen": {func(f *Facts) { f.Services[0].Status.Conditions = nil },
		[]Kind{KindService}, []string{"Service shop/web: the controller has not reported on it"}},
	"everything at once": {func(f *Facts) {
		f.Leader = leaseOf("ccm-0", time.Hour)
		f.Events = unreadable(0, "401")
		taint(f)
		f.Nodes[0].Spec = corev1.NodeSpec{}
		withoutAgent(f)
		f.Services[0].Status.Conditions = nil
		f.Blocks = []v1beta1.IPBlock{orphaned("block-b")}
	}, []Kind{KindController, KindAccount, KindWaiting, KindServer, KindAgent, KindService, KindBlocks},
		[]string{"No controller works"}},
}

// unreadable are the events of a controller that could not read the account some time ago.
func unreadable(ago time.Duration, message string) []corev1.Event {
	return []corev1.Event{{LastTimestamp: metav1.NewTime(now.Add(-ago)), Reason: contract.AccountUnreadable,
		Message: message}}
}

// The mistakes of the first day are the first lines of the output, with the reason and what to do.
func TestMistakesOfTheFirstDay(t *testing.T) {
	found := 0
	for name, tc := range mistakes {
		f := sound()
		tc.make(&f)
		o := Make(f)
		var kinds []Kind
		for _, p := range o.Problems {
			kinds = append(kinds, p.Kind)
		}
		if !slices.Equal(kinds, tc.kinds) {
			t.Errorf("%s: the problems are %q, want %q", name, kinds, tc.kinds)
			continue
		}
		found++
		var out bytes.Buffer
		if err := PrintStatus(&out, text.Style{}, o); err != nil {
			t.Fatal(err)
		}
		shown := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range tc.first {
			if !strings.HasPrefix(shown, "PROBLEMS - ") || !strings.Contains(o.Problems[0].Message, want) ||
				!strings.Contains(shown, want) {
				t.Errorf("%s: %q is missing in %q", name, want, o.Problems[0].Message)
			}
		}
		if len(tc.first) == 0 && !strings.HasPrefix(shown, "+ no problems found ") {
			t.Errorf("%s: %s", name, shown)
		}
	}
	t.Logf("figure first_day_mistakes_found %d cases", found)
}

// What was not reported or not read is unknown, in the tables too.
func TestUnknownIsNotGuessed(t *testing.T) {
	for name, tc := range map[string]struct {
		make    func(*Facts)
		written []string // what is written
		guesses []string // what is not
	}{
		"no controller has ever run": {func(f *Facts) {
			f.Leader = nil
			f.Networks = nil
			taint(f)
			f.Services[0].Status.Conditions = nil
		}, []string{"worker-1 ? unknown ? unknown", "STATE shop/web 203.0.113.2 - ? ? unknown",
			"account not read yet", "IP BLOCKS ? the controller has not read the account yet"}, []string{"! no"}},
		"--load-balancer is not set": {func(f *Facts) {
			f.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Annotations: map[string]string{
				contract.NodeServerID: serverID, contract.NodePublicNetworks: "[]"}}}}
			f.Networks = nil
			f.Services[0].Status.Conditions = nil
		}, []string{"Public network: none, because --load-balancer is not set", "? not served"}, nil},
		"no one knows who has addresses": {func(f *Facts) {
			f.Blocks = []v1beta1.IPBlock{{ObjectMeta: metav1.ObjectMeta{Name: "x",
				CreationTimestamp: metav1.NewTime(now)}, Spec: v1beta1.IPBlockSpec{BlockID: "b"},
				Status: v1beta1.IPBlockStatus{Used: "0/5"}}}
		}, []string{"USED AGE STANDING FOR - ? 0s"}, []string{"0/5"}},
		"blocks may not be read": {func(f *Facts) { f.Unread = []Part{PartBlocks} }, []string{"IP BLOCKS ? unknown"},
			[]string{"IP BLOCKS none"}},
		"networks may not be read": {func(f *Facts) {
			f.Unread = []Part{PartNetworks}
			f.Networks = nil
		}, []string{"account unknown", "its IP blocks are not known"}, []string{"not read yet"}},
		"Nodes and Services may not be read": {func(f *Facts) {
			f.Unread = []Part{PartNodes, PartServices}
			f.Nodes = nil
			f.Services = nil
		}, []string{"NODES ? unknown", "SERVICES ? unknown", "Public network: ? unknown"}, []string{"SERVICES none"}},
		"the Lease may not be read": {func(f *Facts) {
			f.Unread = []Part{PartController}
			f.Leader = nil
		}, []string{"Controller: ? unknown"}, []string{"No controller works"}},
	} {
		f := sound()
		tc.make(&f)
		var out bytes.Buffer
		if err := PrintStatus(&out, text.Style{}, Make(f)); err != nil {
			t.Fatal(err)
		}
		shown := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range tc.written {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: %q is missing:\n%s", name, want, shown)
			}
		}
		for _, guess := range tc.guesses {
			if strings.Contains(shown, guess) {
				t.Errorf("%s: %q is stated:\n%s", name, guess, shown)
			}
		}
	}
}

// The page on troubleshooting shows what the command writes on a first day: the image of the controller cannot be
// pulled, so the Nodes wait, and the agents are not installed.
func TestThePageShowsTheFirstDay(t *testing.T) {
	f := sound()
	f.Leader = nil
	f.Networks = nil
	f.Services = nil
	taint(&f)
	withoutAgent(&f)
	f.Pods[0].Name = controllerApp + "-5d8f7c9b4-x2x7q"
	waitsFor(&f.Pods[0], "ImagePullBackOff", "manifest unknown")
	f.Pods[0].Status.ContainerStatuses[0].Image = "phoenixnap/phoenixnap-cloud-controller-manager:v2.0.0"
	var out bytes.Buffer
	if err := PrintStatus(&out, text.Style{Unicode: true}, Make(f)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guides", "troubleshoot.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+out.String()+"```\n") {
		t.Errorf("docs/guides/troubleshoot.md does not show\n%s", &out)
	}
}
