package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Values of the label of pods that distinguishes programs.
const (
	podLabel      = "app.kubernetes.io/name"
	controllerApp = "phoenixnap-cloud-controller-manager"
	agentApp      = "phoenixnap-agent"
)

// PodSelector selects the pods of the controller and of the agents.
const PodSelector = podLabel + " in (" + controllerApp + "," + agentApp + ")"

// podsOf returns the pods of a program that are not being deleted, those that have ended last.
func podsOf(f Facts, app string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range f.Pods {
		if p := &f.Pods[i]; p.Labels[podLabel] == app && p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		switch {
		case hasEnded(a) == hasEnded(b):
			return cmp.Compare(a.Name, b.Name)
		case hasEnded(a):
			return 1
		default:
			return -1
		}
	})
	return pods
}

// hasEnded reports whether a pod is finished, such as an evicted one: another one replaces it.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// ailment is why a pod does not work, and what to do about it; empty when it runs.
type ailment struct{ cause, remedy string }

// ailmentOf returns why a pod does not work. Only what its status contains counts.
func ailmentOf(p *corev1.Pod) ailment {
	describe := "kubectl -n " + p.Namespace + " describe pod " + p.Name
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ailment{"it is not scheduled: " + cmp.Or(c.Message, c.Reason), describe}
		}
	}
	for _, status := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		if a := ailmentOfContainer(p, status, describe); a != (ailment{}) {
			return a
		}
	}
	if p.Status.Phase != corev1.PodRunning {
		why := strings.TrimSpace(p.Status.Reason + " " + p.Status.Message)
		return ailment{strings.TrimSuffix("it is "+string(p.Status.Phase)+": "+why, ": "), describe}
	}
	return ailment{}
}

func ailmentOfContainer(p *corev1.Pod, status corev1.ContainerStatus, describe string) ailment {
	logs := "kubectl -n " + p.Namespace + " logs " + p.Name
	switch waiting := status.State.Waiting; {
	case waiting == nil:
	case isPullFailure(waiting.Reason):
		cause := fmt.Sprintf("image %s is not pulled (%s)", status.Image, waiting.Reason)
		return ailment{strings.TrimSuffix(cause+": "+waiting.Message, ": "), "name an image that the node can pull"}
	case waiting.Reason == "CrashLoopBackOff":
		return ailment{exitOf(status.LastTerminationState.Terminated), logs + " --previous"}
	case waiting.Reason == "ContainerCreating", waiting.Reason == "PodInitializing":
		return ailment{"its container is not created yet: a volume, such as its Secret, may be missing", describe}
	default:
		return ailment{strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": "), describe}
	}
	if status.State.Terminated != nil {
		return ailment{exitOf(status.State.Terminated), logs}
	}
	if !status.Ready && status.State.Running != nil {
		return ailment{"it runs and is not ready", logs}
	}
	return ailment{}
}

func isPullFailure(reason string) bool {
	return slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"ImageInspectError", "RegistryUnavailable"}, reason)
}

func exitOf(terminated *corev1.ContainerStateTerminated) string {
	if terminated == nil {
		return "it ends again and again"
	}
	return fmt.Sprintf("it ended with code %d (%s)", terminated.ExitCode, cmp.Or(terminated.Reason, "no reason"))
}

// sentence describes the ailment of a pod.
func (a ailment) sentence(p *corev1.Pod) string {
	return text.Clean(fmt.Sprintf("pod %s/%s: %s (%s)", p.Namespace, p.Name, a.cause, a.remedy))
}
