package membership

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// Nodes appear, disappear and change their labels, a user removes servers in the portal, requests fail, replies are
// lost, the process is killed and the API server rejects writes: in the end the selected servers are members, each with
// a unique address, the foreign membership is unchanged, and everything is released when no Node is selected any more.
// However late the list of blocks is, there is never more than one block.
func TestMembershipWalks(t *testing.T) {
	for seed := range seeds.Count(t, 4) {
		walk(t, uint64(seed))
	}
}

// randomWalk is one random walk: the world, and which Nodes exist and are selected.
type randomWalk struct {
	*world
	random *rand.Rand
	// selected contains the Nodes that exist.
	selected map[int]bool
	refusing bool
}

const (
	servers = 6
	foreign = servers // joined by a user
)

func walk(t *testing.T, number uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(number, 7))
	cidr := "203.0.113.0/28"
	if number%2 == 0 {
		cidr = "" // is bought
	}
	seed := seedOf(servers+1, cidr, ownedBy)
	lag := lags[random.IntN(len(lags))]
	seed.Accounts[0].Servers[foreign].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID}}
	s := &randomWalk{random: random, selected: map[int]bool{},
		world: newWorldOf(t, lagging(lag), seed, nil)}
	s.kube.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s.refusing && random.IntN(3) == 0 {
			return true, nil, errors.New("the API server is unavailable")
		}
		return false, nil, nil
	})
	s.node(foreign, false)
	s.start()
	for range 30 {
		s.event()
		s.work(time.Duration(random.IntN(90)) * time.Second)
		s.check(number)
	}
	s.sim.Disarm()
	s.refusing = false
	s.work(20 * time.Minute)
	for i := range servers {
		if member := s.member(i) != "none"; member != s.selected[i] {
			t.Errorf("seed %d: %s is selected: %v, but its membership is %s", number, nodeName(i), s.selected[i],
				s.member(i))
		}
	}
	s.check(number)
	s.deselect()
	s.work(40 * time.Minute)
	s.expectRecord()
	s.expectMember(foreign, "assigned")
	if leaks := s.sim.LeakCheck(simtest.ClientID); len(leaks) > 0 {
		t.Errorf("seed %d: blocks %v are left", number, leaks)
	}
	if t.Failed() {
		t.Fatalf("seed %d failed", number)
	}
}

// event causes one random event.
func (s *randomWalk) event() {
	s.t.Helper()
	i := s.random.IntN(servers)
	_, there := s.selected[i]
	switch s.random.IntN(8) {
	case 0, 1, 2:
		edge := s.random.IntN(3) > 0
		if there {
			s.selectNode(i, edge)
		} else {
			s.node(i, edge)
		}
		s.selected[i] = edge
	case 3:
		if there {
			if err := s.kube.CoreV1().Nodes().Delete(s.t.Context(), nodeName(i), metav1.DeleteOptions{}); err != nil {
				s.t.Fatal(err)
			}
			delete(s.selected, i)
		}
	case 4:
		if s.member(i) != "none" && !strings.Contains(s.member(i), "in-progress") {
			s.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(i), Network: simtest.NetworkID})
		}
	case 5:
		s.start() // the process was killed
	case 6:
		s.refusing = !s.refusing
	default:
		s.breakSomething()
	}
}

// breakSomething makes the next requests of one kind fail.
func (s *randomWalk) breakSomething() {
	s.t.Helper()
	faults := []pnapsim.Fault{
		{Action: pnapsim.FaultLost}, {Action: pnapsim.FaultReset}, {Action: pnapsim.FaultStatus, Status: 500},
		{Action: pnapsim.FaultStatus, Status: 409}, {Action: pnapsim.FaultTruncate},
	}
	fault := faults[s.random.IntN(len(faults))]
	fault.Method = []string{"GET", "POST", "DELETE", "POST"}[s.random.IntN(4)]
	fault.Client = simtest.ClientID
	fault.Times = 1 + s.random.IntN(3)
	if err := s.sim.Arm(fault); err != nil {
		s.t.Fatal(err)
	}
}

// work runs the Manager for a while; failures are expected.
func (s *randomWalk) work(d time.Duration) {
	s.t.Helper()
	for until := s.sim.Clock().Now().Add(d); s.sim.Clock().Now().Before(until); {
		again, err := s.sync()
		if err != nil {
			again = soon
		}
		s.sim.Advance(again)
	}
}

// check checks the invariants of the account.
func (s *randomWalk) check(number uint64) {
	s.t.Helper()
	if all := s.sim.State(simtest.AccountID).Blocks; len(all) > 1 {
		s.t.Fatalf("seed %d: the nodes have %d blocks: %v", number, len(all), all)
	}
	holders := map[string]string{}
	for id, server := range s.servers() {
		entry, _ := membershipOf(server, simtest.NetworkID)
		for _, ip := range texts(entry.IPs) {
			if other, taken := holders[ip]; taken {
				s.t.Fatalf("seed %d: servers %s and %s both have %s", number, id, other, ip)
			}
			holders[ip] = id
		}
	}
}

func (s *randomWalk) deselect() {
	s.t.Helper()
	for i := range servers {
		if _, there := s.selected[i]; there {
			s.selectNode(i, false)
			s.selected[i] = false
		}
	}
}
