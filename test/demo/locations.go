//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func (l *locations) answered(ctx context.Context) error {
	for _, at := range l.both() {
		var err error
		if at.probe, err = l.ask(ctx, at.address, calm); err != nil {
			return err
		}
	}
	for _, at := range l.both() {
		answer, err := l.awaitAnswer(ctx, at.probe, 2*time.Minute, "an answer in "+at.name, l.answerToClient)
		if err != nil {
			return err
		}
		if err := l.showAnswer(ctx, at.gateway, at.address, answer); err != nil {
			return err
		}
		announcer, err := l.announcerOf(ctx, at.gateway, at.address)
		if err != nil {
			return err
		}
		if l.locationOf(announcer) != at.name {
			return fmt.Errorf("server %s, elsewhere, announces %s of %s", announcer, at.address, at.name)
		}
		l.say("the agent of %s announces it; kube-proxy there passes requests to the pods in %s", announcer, at.name)
	}
	return nil
}

func (l *locations) refused(ctx context.Context) error {
	if err := l.CreateServiceOn(ctx, refusedService, l.home.servers,
		map[string]string{contract.ServiceNetwork: "east"}); err != nil {
		return err
	}
	l.say("Service %s has %s: east", refusedService, contract.ServiceNetwork)
	var condition metav1.Condition
	_, err := until(ctx, time.Minute, refusedService+" is refused", func(ctx context.Context) (bool, string, error) {
		service, err := l.service(ctx, refusedService)
		if err != nil {
			return false, "", err
		}
		c := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
		if c == nil {
			return false, "no condition " + contract.ServiceConditionBlockAssigned, nil
		}
		condition = *c
		return strings.Contains(c.Message, "name one of"), c.Reason + ": " + c.Message, nil
	})
	if err != nil {
		return err
	}
	l.say("its condition %s is False, with reason %s:", condition.Type, condition.Reason)
	l.wrapped(condition.Message)
	for _, at := range l.both() {
		if named := fmt.Sprintf("%s (%s)", at.network, at.name); !strings.Contains(condition.Message, named) {
			return fmt.Errorf("the message does not name %s", named)
		}
	}
	return nil
}

// overview shows what kubectl pnap prints once the agents have reported. It ends with code 1 when it shows a problem.
func (l *locations) overview(ctx context.Context) error {
	if err := l.typed(ctx, "wait", "services", l.home.service, l.away.service, "--for=condition="+
		contract.ServiceConditionAnnounced, "--timeout=2m"); err != nil {
		return err
	}
	program, err := tools.Product(ctx, plugin)
	if err != nil {
		return fmt.Errorf("kubectl pnap: %w", err)
	}
	l.say("kubectl pnap status")
	out, err := exec.CommandContext(ctx, program, "status", "--kubeconfig", l.AdminKubeconfig()).CombinedOutput()
	l.quote(string(out))
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		return fmt.Errorf("kubectl pnap: %w", err)
	}
	return nil
}

// fail takes the server of the other location away. That the controller reports it as silent takes minutes, for which
// the story does not wait.
func (l *locations) fail(ctx context.Context) error {
	if _, err := l.awaitAnswer(ctx, l.home.probe, 2*time.Minute, "answers in a row from "+l.home.name,
		undisturbed); err != nil {
		return err
	}
	l.died = time.Now()
	for _, server := range l.away.servers {
		if err := l.TakeAway(ctx, server.Name); err != nil {
			return err
		}
		l.say("%s is dead, and no other server is in %s", server.Name, l.away.name)
	}
	if _, err := l.awaitAnswer(ctx, l.away.probe, 2*time.Minute, l.away.address.String()+" is silent",
		func(attempts []lab.Attempt) (lab.Attempt, bool) {
			last, ok := silent(attempts)
			return last, ok && last.At.Sub(l.died) >= outage
		}); err != nil {
		return err
	}
	l.say("GET http://%s/ → no answer, %.0f s after that", l.away.address, time.Since(l.died).Seconds())
	_, err := l.missed(ctx)
	return err
}

// undisturbed finds the last of the answers to all requests for a while, so that what is lost later is lost by a fault
// and not because something has just begun.
func undisturbed(attempts []lab.Attempt) (lab.Attempt, bool) {
	failed := -1
	for i, a := range attempts {
		if !a.OK {
			failed = i
		}
	}
	row := attempts[failed+1:]
	if len(row) < steady || row[len(row)-1].At.Sub(row[0].At) < 2*calm {
		return lab.Attempt{}, false
	}
	return row[len(row)-1], true
}

// silent finds the last of several requests in a row without an answer, if they are the last ones.
func silent(attempts []lab.Attempt) (lab.Attempt, bool) {
	row := attempts[max(0, len(attempts)-steady):]
	if len(row) < steady || slices.ContainsFunc(row, func(a lab.Attempt) bool { return a.OK }) {
		return lab.Attempt{}, false
	}
	return row[steady-1], true
}

// missed counts the requests to the first location without an answer since the other one failed. There may be none.
func (l *locations) missed(ctx context.Context) (lost int, err error) {
	attempts, err := l.Lab.ProbeResults(ctx, l.home.probe)
	if err != nil {
		return 0, fmt.Errorf("what the client was answered: %w", err)
	}
	asked, lost := lostSince(attempts, l.died)
	l.say("GET http://%s/ → %d requests since %s failed, %d of them without an answer", l.home.address, asked,
		l.away.name, lost)
	if lost > 0 {
		return lost, fmt.Errorf("%d requests to the location that did not fail had no answer: %+v", lost,
			lab.Outages(attempts))
	}
	return lost, nil
}

// lostSince counts the requests that were under way at a moment or came later, and those of them without an answer.
// None is waited for longer than calm: what began earlier and ends later was held up by the machine.
func lostSince(attempts []lab.Attempt, since time.Time) (asked, lost int) {
	for _, a := range attempts {
		if a.At.Add(a.Took).Before(since) || a.At.Before(since.Add(-calm)) {
			continue
		}
		asked++
		if !a.OK {
			lost++
		}
	}
	return asked, lost
}

func (l *locations) comeBack(ctx context.Context) error {
	begun := time.Now()
	for _, server := range l.away.servers {
		if err := l.BringBack(ctx, server); err != nil {
			return err
		}
		l.say("%s is switched on", server.Name)
	}
	answer, err := l.awaitAnswer(ctx, l.away.probe, patience, l.away.address.String()+" answers again",
		after(l.died))
	if err != nil {
		return err
	}
	took := answer.At.Add(answer.Took).Sub(begun)
	l.seconds("demo_networks_answered_after_return", took)
	l.say("GET http://%s/ → %s (%.1f s after that began)", l.away.address, strings.TrimSpace(answer.Body),
		took.Seconds())
	lost, err := l.missed(ctx)
	l.count("demo_networks_lost_requests_elsewhere", lost, "requests")
	return err
}

// deleteServices ends the requests, and deletes all Services.
func (l *locations) deleteServices(ctx context.Context) error {
	for _, at := range l.both() {
		if _, err := l.Lab.StopProbe(ctx, at.probe); err != nil {
			return fmt.Errorf("end the client's requests: %w", err)
		}
	}
	for _, name := range []string{l.home.service, l.away.service, refusedService} {
		if _, err := l.releaseService(ctx, name); err != nil {
			return err
		}
	}
	if err := l.onlyNodeBlocks(ctx, cluster.NodeBlockID, cluster.AwayNodeBlockID); err != nil {
		return err
	}
	l.say("their blocks are gone; left are the user's own blocks for the nodes, one in each location")
	return nil
}

// deleteNetwork deletes the object, which needs a confirmation as long as its network has blocks.
func (l *locations) deleteNetwork(ctx context.Context) error {
	l.say("kubectl delete pubnet %s", west)
	out, err := l.printed(ctx, "delete", "pubnet", west)
	l.wrapped(out)
	if err == nil {
		return errors.New("a PublicNetwork with blocks was deleted without a confirmation")
	}
	l.say("it is refused because of the user's block for the nodes, which stays; the user confirms:")
	if err := l.typed(ctx, "annotate", "pubnet", west, contract.AllowDeletion+"=true"); err != nil {
		return err
	}
	if err := l.typed(ctx, "delete", "pubnet", west); err != nil {
		return err
	}
	return l.handBack(ctx, cluster.NodeBlockID, cluster.AwayNodeBlockID)
}
