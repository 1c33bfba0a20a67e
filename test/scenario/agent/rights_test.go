//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// rightsVariable makes the test program diagnose the node and print what it found.
const rightsVariable = "PNAP_LOOK_WITH_FEW_RIGHTS"

// findings are the outcomes of checks by ID, the judgement over an address, and what could not be read.
type findings struct {
	Checks  map[check.ID]string
	Address string
	Unread  []string
	// Listening reports whether ARP could be listened to.
	Listening bool
}

// TestRightsProcess is not a test: it is the process that TestNetRawIsEnough starts.
func TestRightsProcess(t *testing.T) {
	if os.Getenv(rightsVariable) == "" {
		return
	}
	n := &network{t: t}
	if err := json.NewEncoder(os.Stdout).Encode(n.findings()); err != nil {
		t.Error(err)
	}
	os.Exit(0)
}

// findings makes every check of the node that a watching agent makes.
func (n *network) findings() findings {
	n.t.Helper()
	e := expected()
	e.Virtual = []netip.Addr{netip.MustParseAddr(serviceVIP)}
	s, report := n.look(e)
	found := findings{Checks: map[check.ID]string{}, Unread: s.Unread}
	for _, f := range report.Findings {
		found.Checks[f.ID] = fmt.Sprint(f.Status, " ", f.Reason)
	}
	seen, err := vip.Observe(n.t.Context(), arp.NewProber(), netstate.NewReader(),
		vip.View{Report: report, Snapshot: s}, []vip.Target{{Address: e.Virtual[0], Service: "default/web"}})
	n.must("observe", err)
	f := vip.Evaluate(seen[0])
	found.Address = fmt.Sprint(f.Status, " ", f.Reason)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err == nil {
		found.Listening = unix.Close(fd) == nil
	}
	return found
}

// lookWith diagnoses the node as a user without any right but the given capabilities.
func (n *network) lookWith(capabilities ...uintptr) findings {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), os.Args[0], "-test.run=^TestRightsProcess$")
	cmd.Env = append(os.Environ(), rightsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
		AmbientCaps: capabilities, Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("look with few rights: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	var found findings
	n.must("read what was found", json.Unmarshal(stdout.Bytes(), &found))
	return found
}

// TestNetRawIsEnough: the user otherUID with CAP_NET_RAW finds what root finds.
func TestNetRawIsEnough(t *testing.T) {
	n := newNetwork(t)
	n.addAddress(nodeVIF, serviceVIP+"/32")
	want := n.findings()
	if gateway := want.Checks[check.GatewayAnswers]; gateway != "OK " || !want.Listening ||
		want.Address != "OK "+vip.ReasonAnswered {
		t.Fatalf("root finds %+v", want)
	}
	if diff := cmp.Diff(want, n.lookWith(unix.CAP_NET_RAW)); diff != "" {
		t.Errorf("the user otherUID with CAP_NET_RAW finds less than root (-root +otherUID):\n%s", diff)
	}
}

// TestWithoutNetRaw: without the capability nothing of the wire is known, and nothing is called broken for it.
func TestWithoutNetRaw(t *testing.T) {
	n := newNetwork(t)
	n.addAddress(nodeVIF, serviceVIP+"/32")
	found := n.lookWith()
	if gateway := found.Checks[check.GatewayAnswers]; !strings.HasPrefix(gateway, string(check.Unknown)) ||
		found.Listening {
		t.Errorf("without any capability the gateway is %q, listening %v", gateway, found.Listening)
	}
	for id, outcome := range found.Checks {
		if strings.HasPrefix(outcome, string(check.Fail)) {
			t.Errorf("%s is %s for want of a right", id, outcome)
		}
	}
}
