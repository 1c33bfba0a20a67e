package overview

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// filledWith returns facts that hold a text wherever others than the provider can write, and a number in each time.
func filledWith(raw string, number int64) Facts {
	at := time.Unix(number, 0)
	conditions := []corev1.NodeCondition{
		{Type: contract.ConditionVLANReady, Status: corev1.ConditionStatus(raw), Reason: raw, Message: raw},
		{Type: contract.ConditionAnnouncementHealthy, Status: "False", Reason: raw, Message: raw},
	}
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: raw, Annotations: map[string]string{contract.NodeServerID: raw,
			contract.NodePublicNetworks: raw, contract.NodeReportedAddresses: raw,
			contract.NodeReportedIdentity: raw}},
		Spec:   corev1.NodeSpec{ProviderID: raw},
		Status: corev1.NodeStatus{Conditions: conditions},
	}
	described := *node.DeepCopy()
	described.Annotations[contract.NodePublicNetworks] = nodenet.On(contract.NodeNetwork{Name: "n" + raw,
		ID: "n" + raw, Announcer: raw})[contract.NodePublicNetworks]
	silent := *node.DeepCopy()
	silent.Status.Conditions = nil
	waiting := *silent.DeepCopy()
	waiting.Spec.Taints = []corev1.Taint{{Key: taintUninitialized}}
	service := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: raw, Name: raw,
			Annotations: map[string]string{contract.ServiceIPAddress: raw, contract.ServiceIPBlockCIDR: raw}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: contract.ServiceConditionBlockAssigned,
			Status: metav1.ConditionStatus(raw), Reason: raw, Message: raw}}},
	}
	var pods []corev1.Pod
	for _, app := range []string{controllerApp, agentApp} {
		for _, reason := range []string{"ImagePullBackOff", "CrashLoopBackOff", raw} {
			pod := podOf(app, raw, raw)
			pod.Namespace = raw
			waitsFor(&pod, reason, raw)
			pod.Status.ContainerStatuses[0].Image = raw
			pods = append(pods, pod)
		}
	}
	shown := []metav1.Condition{{Type: v1beta1.ConditionReady, Status: "False", Reason: raw, Message: raw,
		LastTransitionTime: metav1.NewTime(at)}}
	orphan := v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: raw, CreationTimestamp: metav1.NewTime(at)},
		Spec: v1beta1.IPBlockSpec{BlockID: raw, Purpose: v1beta1.PurposeService,
			ServiceRef: &v1beta1.ServiceReference{Namespace: raw, Name: raw}},
		Status: v1beta1.IPBlockStatus{CIDR: raw, Location: raw, Used: raw, Conditions: []metav1.Condition{{
			Type: v1beta1.ConditionOrphaned, Status: "True", Reason: raw, Message: raw}}}}
	block := *orphan.DeepCopy()
	block.Spec.ServiceRef = nil
	block.Status.Allocations = &[]v1beta1.Allocation{{Address: raw}}
	block.Status.Conditions = shown
	network := v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.DefaultNetwork},
		Spec: v1beta1.PublicNetworkSpec{ID: raw}, Status: v1beta1.PublicNetworkStatus{Blocks: raw, Conditions: shown,
			AccountReadTime: &metav1.Time{Time: at}}}
	other := *network.DeepCopy()
	other.Name = raw
	return Facts{
		Now: now, Nodes: []corev1.Node{node, described, silent, waiting}, Services: []corev1.Service{service},
		Blocks: []v1beta1.IPBlock{orphan, block}, Leader: leaseOf(raw, time.Duration(number)),
		Networks: []v1beta1.PublicNetwork{network, other}, Pods: pods,
		Events: []corev1.Event{{LastTimestamp: metav1.NewTime(at), Reason: contract.AccountUnreadable, Message: raw},
			{LastTimestamp: metav1.NewTime(at), Reason: contract.OrphanedIPBlock, Message: raw}},
		Unreadable: []string{raw},
	}
}

// FuzzPrint: whatever conditions, annotations, IPBlocks, Leases, pods and errors contain, the tables end, and contain
// only printable text and line feeds; with colors no other escapes than those.
func FuzzPrint(f *testing.F) {
	for _, raw := range []string{"", "plain", "\x1b[", "\x1b[2J\x1b]0;t\x07", "a\x1b[31", "\u202e\u200b\u009b1A",
		"\xff\xe2", "one\r\n- forged\u2028line", strings.Repeat("wide ", 99)} {
		f.Add(raw, int64(0), 80)
		f.Add(raw, now.Unix(), -1)
	}
	f.Fuzz(func(t *testing.T, raw string, number int64, width int) {
		facts := filledWith(raw, number%(1<<36))
		for _, unreachable := range []string{"", raw} {
			facts.Unreachable = unreachable
			o := Make(facts)
			for _, color := range []bool{false, true} {
				var out strings.Builder
				style := text.Style{Color: color, Unicode: color, Width: width % 1000}
				if err := PrintStatus(&out, style, o); err != nil {
					t.Fatal(err)
				}
				printable(t, raw, withoutColors(out.String()))
			}
			encoded, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			printable(t, raw, string(encoded))
		}
	})
}

// withoutColors removes the escapes of text.Style.Paint that this package uses.
func withoutColors(out string) string {
	for _, code := range []string{"0", "1", healthy.color, waiting.color, broken.color, unknown.color} {
		out = strings.ReplaceAll(out, "\x1b["+code+"m", "")
	}
	return out
}

func printable(t *testing.T, raw, out string) {
	t.Helper()
	bad := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
	if bad >= 0 || !utf8.ValidString(out) {
		t.Errorf("%q reaches the terminal: %q", raw, out[max(0, bad):min(len(out), max(0, bad)+60)])
	}
}
