package pnapsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Violation is a broken rule. Rules "simulator" and "openapi-response" are the simulator's own faults,
// all others the client's.
type Violation struct {
	// Time of the model.
	Time time.Time `json:"time"`
	// Rule that was broken, such as "foreign-object".
	Rule string `json:"rule"`
	// Client that broke it; empty when it is not known.
	Client string `json:"client,omitempty"`
	// Detail describes what happened.
	Detail string `json:"detail"`
}

// String formats the violation in a line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (client %q, at %s)", v.Rule, v.Detail, v.Client, v.Time.UTC().Format(timeForm))
}

// maxViolations bounds the list; more add nothing.
const maxViolations = 1000

// What a block that is not a client's own may be used for, when it was seeded so.
const (
	GrantAssign   = "assign"
	GrantUnassign = "unassign"
	GrantTags     = "tags"
	GrantDelete   = "delete"
)

// What force=true may be used for, when the client declares it.
const (
	ForceJoin       = "join"
	ForceMembership = "membership"
	ForceUnassign   = "unassign"
)

// judge remembers what clients did and lists what they must not do.
type judge struct {
	violations []Violation
	memories   map[string]*memory
	published  map[string]publication // by service
}

func newJudge() judge {
	return judge{memories: map[string]*memory{}, published: map[string]publication{}}
}

// Violations returns all broken rules so far.
func (s *Sim) Violations() []Violation {
	defer s.enter()()
	return slices.Clone(s.judge.violations)
}

func (s *Sim) violate(c *client, rule, detail string) {
	if len(s.judge.violations) >= maxViolations {
		return
	}
	v := Violation{Time: s.now, Rule: rule, Detail: s.blot(detail)}
	if c != nil {
		v.Client = c.id
	}
	s.judge.violations = append(s.judge.violations, v)
}

// owns reports whether a block is provably a client's: it bought it, or the block has the client's tags.
func (s *Sim) owns(c *client, a *account, b *block) bool {
	if b.owner == c.id {
		return true
	}
	if len(c.marks) == 0 {
		return false
	}
	tags := tagMap(a, b.tags)
	for name, value := range c.marks {
		if got, tagged := tags[name]; !tagged || got != value {
			return false
		}
	}
	return true
}

func judged(c *call) bool { return c.client != nil && c.client.judged && !c.twice }

// judgeBlockUse reports a change of a block that is not the client's and was not granted.
func (s *Sim) judgeBlockUse(c *call, b *block, grant string) {
	if !judged(c) || slices.Contains(b.grants, grant) || s.owns(c.client, c.account, b) {
		return
	}
	s.violate(c.client, "foreign-object", fmt.Sprintf("%s of block %s (%s), which is not the client's", grant, b.id,
		b.cidr))
}

func (s *Sim) judgeNetworkUse(c *call, n *network) {
	if judged(c) && n.owner != c.client.id {
		s.violate(c.client, "foreign-object", fmt.Sprintf("%s of network %s, which is not the client's", c.op.method,
			n.id))
	}
}

func (s *Sim) judgeServerUse(c *call, srv *server) {
	if judged(c) && srv.owner != c.client.id {
		s.violate(c.client, "foreign-object", fmt.Sprintf("%s of server %s, which is not the client's", c.op.name(),
			srv.id))
	}
}

func (s *Sim) judgeMembershipUse(c *call, srv *server, m *membership) {
	if judged(c) && m.owner != c.client.id && srv.owner != c.client.id {
		s.violate(c.client, "foreign-object",
			fmt.Sprintf("%s of server %s's membership in network %s, which is not the client's", c.op.method, srv.id,
				m.network))
	}
}

func (s *Sim) judgeTagDeletion(c *call, t *tag) {
	if !judged(c) {
		return
	}
	for _, b := range c.account.blocksInOrder() {
		uses := slices.ContainsFunc(b.tags, func(one assignment) bool { return one.tagID == t.id })
		if uses && !s.owns(c.client, c.account, b) {
			s.violate(c.client, "foreign-object", fmt.Sprintf("deletion of tag %q, which foreign block %s bears",
				t.name, b.id))
		}
	}
}

// judgeForce reports force=true where the client did not declare it.
func (s *Sim) judgeForce(c *call, use string) {
	if c.force && judged(c) && !slices.Contains(c.client.forces, use) {
		s.violate(c.client, "force", fmt.Sprintf("%s with force=true, which the client did not declare", c.op.name()))
	}
}

// judgeNetworkChange reports a second change while the client's own change of the network runs.
func (s *Sim) judgeNetworkChange(c *call, n *network) {
	if judged(c) && n.changes > 0 && n.busyBy == c.client.id {
		s.violate(c.client, "concurrent-change", fmt.Sprintf("%s while the client's own change of network %s runs",
			c.op.name(), n.id))
	}
}

func (s *Sim) judgeServerChange(c *call, srv *server) {
	if judged(c) && srv.changing == c.client.id {
		s.violate(c.client, "concurrent-change", fmt.Sprintf("%s while the client's own change of server %s runs",
			c.op.name(), srv.id))
	}
}

// judgePurchase reports a purchase while an equal block of the client's is idle, or beyond its limit.
func (s *Sim) judgePurchase(c *call, bought *block) {
	if !judged(c) {
		return
	}
	for _, b := range c.account.blocksInOrder() {
		idle := b.status == blockUnassigned || b.status == blockCreating
		if idle && s.owns(c.client, c.account, b) && equalBlocks(b, bought) {
			s.violate(c.client, "needless-purchase",
				fmt.Sprintf("purchase of %s while the equal block %s (%s) lies idle", bought.cidr, b.id, b.cidr))
		}
	}
	if limit := c.client.buys; limit != nil && c.account.money.byClient[c.client.id] >= *limit {
		s.violate(c.client, "money", fmt.Sprintf("purchase number %d; at most %d were declared",
			c.account.money.byClient[c.client.id]+1, *limit))
	}
}

// equalBlocks reports whether one block would serve in the place of the other: same place, size and tags.
func equalBlocks(a, b *block) bool {
	if a.location != b.location || a.cidr.Bits() != b.cidr.Bits() || a.isV6() != b.isV6() ||
		len(a.tags) != len(b.tags) {
		return false
	}
	return !slices.ContainsFunc(a.tags, func(one assignment) bool { return !slices.Contains(b.tags, one) })
}

// LeakCheck reports every block that still belongs to a client, except those named, and lists them.
// It belongs at the end of a run, when all Services are gone and the clock was advanced.
func (s *Sim) LeakCheck(clientID string, except ...string) []string {
	defer s.enter()()
	c := s.clients[clientID]
	if c == nil {
		return nil
	}
	leaks := []string{}
	a := s.accounts[c.account]
	for _, b := range a.blocksInOrder() {
		if s.owns(c, a, b) && b.resourceKind != ofServer && !slices.Contains(except, b.id) {
			leaks = append(leaks, b.id)
			s.violate(c, "leak", fmt.Sprintf("block %s (%s, %s) is still there and paid for", b.id, b.cidr, b.status))
		}
	}
	return leaks
}

// scan reports a request with a secret in the wrong place, and returns the body with secrets
// blotted out.
func (s *Sim) scan(r *http.Request, raw []byte) string {
	places := []string{r.URL.Path, plainQuery(r), string(raw)}
	for name, values := range r.Header {
		if name != "Authorization" || strings.HasPrefix(strings.Join(values, " "), "Basic ") {
			places = append(places, values...)
		}
	}
	if user, password, ok := r.BasicAuth(); ok {
		places = append(places, user, password)
	}
	for _, place := range places {
		if names := s.secretsIn(place); len(names) > 0 {
			s.violate(nil, "secret", fmt.Sprintf("%s %s carries %s", r.Method, r.URL.Path, strings.Join(names, ", ")))
		}
	}
	return s.blot(string(raw))
}

// plainQuery is the query without its encoding, which could hide a secret; a malformed one as it is.
func plainQuery(r *http.Request) string { return unescape(r.URL.RawQuery) }

// FindSecrets names the secrets that a text holds: client secrets and tokens. Give it a client's log.
func (s *Sim) FindSecrets(text string) []string {
	defer s.enter()()
	return s.secretsIn(text)
}

func (s *Sim) secretsIn(text string) []string {
	var names []string
	for id, c := range s.clients {
		if c.secret != "" && strings.Contains(text, c.secret) {
			names = append(names, "the secret of client "+id)
		}
	}
	for value, t := range s.tokens {
		if strings.Contains(text, value) {
			names = append(names, "a token of client "+t.client)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Sim) blot(text string) string {
	for _, c := range s.clients {
		if c.secret != "" {
			text = strings.ReplaceAll(text, c.secret, "[secret]")
		}
	}
	for value := range s.tokens {
		text = strings.ReplaceAll(text, value, "[token]")
	}
	return text
}
