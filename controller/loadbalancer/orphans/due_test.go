package orphans

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Each condition decides on its own whether a block is due, up to its last instant.
func TestDue(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ready := suspicion{state: orphan, since: now.Add(-time.Hour), looks: confirmed}
	confirm := func(s *suspicion) {
		s.held = true
		s.confirmed = true
	}
	leave := func(s *suspicion) {
		s.state = leftover
		s.since = now
	}
	leaveOnce := func(s *suspicion) {
		leave(s)
		s.looks = confirmed - 1
	}
	for name, test := range map[string]struct {
		change func(*suspicion)
		manual bool // orphans are only reported
		want   bool
	}{
		"the grace has just ended":  {change: func(*suspicion) {}, want: true},
		"the grace has not ended":   {change: func(s *suspicion) { s.since = s.since.Add(1) }},
		"only reported":             {change: func(*suspicion) {}, manual: true},
		"seen in one list":          {change: func(s *suspicion) { s.looks = confirmed - 1 }},
		"a step failed":             {change: func(s *suspicion) { s.backoff.Until = now.Add(1) }},
		"the pause has just ended":  {change: func(s *suspicion) { s.backoff.Until = now }, want: true},
		"held":                      {change: func(s *suspicion) { s.held = true }},
		"held and confirmed":        {change: confirm, want: true},
		"empty":                     {change: func(s *suspicion) { s.state = empty }},
		"unclear":                   {change: func(s *suspicion) { s.state = unclear }},
		"a leftover needs no grace": {change: leave, want: true},
		"a leftover, orphans are only reported": {
			change: leave, manual: true, want: true,
		},
		"a leftover in one list": {change: leaveOnce},
	} {
		s := ready
		test.change(&s)
		c := &Collector{
			config:     Config{Collect: !test.manual, Grace: time.Hour, Now: func() time.Time { return now }},
			suspicions: map[string]*suspicion{"b": &s},
		}
		if got := c.due() != nil; got != test.want {
			t.Errorf("%s: due: %t, want %t", name, got, test.want)
		}
	}
}

// The block whose last step failed longest ago comes first, then the one that was suspected longest, then by ID.
func TestDueComesInOrder(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	c := &Collector{config: Config{Collect: true, Now: func() time.Time { return now }},
		suspicions: map[string]*suspicion{}}
	for _, s := range []suspicion{
		{block: network.Block{ID: "a"}, since: hour(-9), backoff: account.Backoff{Until: hour(-1)}},
		{block: network.Block{ID: "b"}, since: hour(-8), backoff: account.Backoff{Until: hour(-2)}},
		{block: network.Block{ID: "d"}, since: hour(-7)},
		{block: network.Block{ID: "c"}, since: hour(-7)},
		{block: network.Block{ID: "e"}, since: hour(-8)},
	} {
		s.state = orphan
		s.looks = confirmed
		c.suspicions[s.block.ID] = &s
	}
	var order []string
	for s := c.due(); s != nil; s = c.due() {
		order = append(order, s.block.ID)
		delete(c.suspicions, s.block.ID)
	}
	if want := []string{"e", "c", "d", "b", "a"}; !slices.Equal(order, want) {
		t.Errorf("released in the order %v, want %v", order, want)
	}
}

// A Service needs its block while it is served, and afterwards until its finalizer is gone.
//
//proves:service-changes/finalizer
func TestWhatNeedsABlock(t *testing.T) {
	foreign := "example.com/other"
	class := contract.LoadBalancerClass
	const own, framework = contract.LoadBalancerFinalizer, servicehelper.LoadBalancerCleanupFinalizer
	const balanced, other = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	for name, test := range map[string]struct {
		kind      corev1.ServiceType
		class     *string
		finalizer string
		want      bool
	}{
		"served":                           {kind: balanced, want: true},
		"served with our class":            {kind: balanced, class: &class, want: true},
		"of another class":                 {kind: balanced, class: &foreign},
		"of another type":                  {kind: other},
		"not released, our finalizer":      {kind: other, finalizer: own, want: true},
		"not released, the framework's":    {kind: other, finalizer: framework, want: true},
		"our class, the framework's":       {kind: other, class: &class, finalizer: framework, want: true},
		"another class, our finalizer":     {kind: balanced, class: &foreign, finalizer: own, want: true},
		"another class, the framework's":   {kind: balanced, class: &foreign, finalizer: framework},
		"another type, another finalizer":  {kind: other, finalizer: "example.com/x"},
		"another class, another finalizer": {kind: balanced, class: &foreign, finalizer: "example.com/x"},
	} {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{test.finalizer}},
			Spec:       corev1.ServiceSpec{Type: test.kind, LoadBalancerClass: test.class},
		}
		if got := plan.NeedsBlock(service); got != test.want {
			t.Errorf("%s: needs its block: %t, want %t", name, got, test.want)
		}
	}
}

// hold is the rule of the breaker: more than two, and more than a fifth.
func TestHold(t *testing.T) {
	orphans := func(n int) []candidate {
		all := make([]candidate, n)
		for i := range all {
			all[i].id = string(rune('a' + i))
		}
		return all
	}
	confirmedOnes := func(all []candidate, n int) []candidate {
		for i := range n {
			all[i].confirmed = true
		}
		return all
	}
	heldOnes := func(all []candidate, n int) []candidate {
		for i := range n {
			all[i].held = true
		}
		return all
	}
	for name, test := range map[string]struct {
		orphans          []candidate
		released, blocks int
		want             int
	}{
		"none":                                {blocks: 3},
		"one of one":                          {orphans: orphans(1), blocks: 1},
		"two of two":                          {orphans: orphans(2), blocks: 2},
		"three of three":                      {orphans: orphans(3), blocks: 3, want: 3},
		"three of fourteen":                   {orphans: orphans(3), blocks: 14, want: 3},
		"three of fifteen":                    {orphans: orphans(3), blocks: 15},
		"six of thirty":                       {orphans: orphans(6), blocks: 30},
		"seven of thirty":                     {orphans: orphans(7), blocks: 30, want: 7},
		"two after one":                       {orphans: orphans(2), released: 1, blocks: 5, want: 2},
		"one after one":                       {orphans: orphans(1), released: 1, blocks: 5},
		"a fifth with those released":         {orphans: orphans(2), released: 1, blocks: 14},
		"three, one confirmed, none held":     {orphans: confirmedOnes(orphans(3), 1), blocks: 5},
		"four, one confirmed":                 {orphans: confirmedOnes(orphans(4), 1), blocks: 5, want: 3},
		"two left that were held":             {orphans: heldOnes(orphans(2), 2), blocks: 5, want: 2},
		"two, of which one was held":          {orphans: heldOnes(orphans(2), 1), blocks: 5, want: 1},
		"held and confirmed":                  {orphans: confirmedOnes(heldOnes(orphans(3), 3), 2), blocks: 5, want: 1},
		"confirmed, though none was held yet": {orphans: confirmedOnes(orphans(5), 5), blocks: 5},
	} {
		if got := hold(test.orphans, test.released, test.blocks); len(got) != test.want {
			t.Errorf("%s: %v are held, want %d", name, got, test.want)
		}
	}
}
