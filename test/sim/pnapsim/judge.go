package pnapsim

import (
	"fmt"
	"net/http"
	"regexp"
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

// Violations returns all broken rules so far.
func (s *Sim) Violations() []Violation {
	defer s.enter()()
	return slices.Clone(s.judge.violations)
}

func (s *Sim) violate(c *client, rule, format string, args ...any) {
	if len(s.judge.violations) >= maxViolations {
		return
	}
	v := Violation{Time: s.now, Rule: rule, Detail: s.blot(fmt.Sprintf(format, args...))}
	if c != nil {
		v.Client = c.ID
	}
	s.judge.violations = append(s.judge.violations, v)
}

// owns reports whether a block is provably a client's: it bought it, or the block has the client's tags. No client buys
// parts, nor what phoenixNAP manages.
func (s *Sim) owns(c *client, a *account, b *block) bool {
	if b.system || b.parent != "" {
		return false
	}
	if b.owner == c.ID {
		return true
	}
	if len(c.OwnershipTags) == 0 {
		return false
	}
	tags := tagMap(a, b.tags)
	for name, value := range c.OwnershipTags {
		if got, tagged := tags[name]; !tagged || got != value {
			return false
		}
	}
	return true
}

// accuse reports a broken rule of a judged client.
func (s *Sim) accuse(c *call, broken bool, rule, format string, args ...any) {
	if broken && c.client != nil && c.client.Judged && !c.twice {
		s.violate(c.client, rule, format, args...)
	}
}

// judgeBlockUse reports a change of a block that is not the client's and was not granted.
func (s *Sim) judgeBlockUse(c *call, b *block, grant string) {
	s.judgeState(c, b, grant)
	s.accuse(c, !slices.Contains(b.grants, grant) && !s.owns(c.client, c.account, b), "foreign-object",
		"%s of block %s (%s), which is not the client's", grant, b.id, b.cidr)
}

// judgeUse reports a change of what is not the client's.
func (s *Sim) judgeUse(c *call, what string, owners ...string) {
	s.accuse(c, !slices.Contains(owners, c.client.ID), "foreign-object", "%s of %s, which is not the client's",
		c.op.name(), what)
}

func (s *Sim) judgeTagDeletion(c *call, t *tag) {
	for _, b := range inOrder(c.account.blocks) {
		uses := slices.ContainsFunc(b.tags, func(one assignment) bool { return one.tagID == t.id })
		s.accuse(c, uses && !s.owns(c.client, c.account, b), "foreign-object",
			"deletion of tag %q, which foreign block %s bears", t.name, b.id)
	}
}

// judgeForce reports force=true where the client did not declare it.
func (s *Sim) judgeForce(c *call, use string) {
	s.accuse(c, c.force && !slices.Contains(c.client.AllowForce, use), "force",
		"%s with force=true, which the client did not declare", c.op.name())
}

// judgeChange reports a second change of something while a client's own change of it runs.
func (s *Sim) judgeChange(c *call, by, what string) {
	s.accuse(c, by == c.client.ID, "concurrent-change", "%s while the client's own change of %s runs", c.op.name(),
		what)
}

// judgePurchase reports a purchase while an equal block of the client's is idle, or beyond its limit.
func (s *Sim) judgePurchase(c *call, bought *block) {
	for _, b := range inOrder(c.account.blocks) {
		idle := b.status == blockUnassigned || b.status == blockCreating
		s.accuse(c, idle && s.owns(c.client, c.account, b) && equalBlocks(b, bought), "needless-purchase",
			"purchase of %s while the equal block %s (%s) lies idle", bought.cidr, b.id, b.cidr)
	}
	if limit := c.client.MaxPurchases; limit != nil {
		number := c.account.money.bill.PurchasesByClient[c.client.ID] + 1
		s.accuse(c, number > *limit, "money", "purchase number %d; at most %d were declared", number, *limit)
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
	for _, b := range inOrder(a.blocks) {
		if s.owns(c, a, b) && b.resourceKind != ofServer && !slices.Contains(except, b.id) {
			leaks = append(leaks, b.id)
			s.violate(c, "leak", "block %s (%s, %s) is still there and paid for", b.id, b.cidr, b.status)
		}
	}
	return leaks
}

// scan reports a request with a secret in the wrong place, and returns the body with secrets blotted out.
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
			s.violate(nil, "secret", "%s %s carries %s", r.Method, r.URL.Path, strings.Join(names, ", "))
		}
	}
	return s.blot(passwords.ReplaceAllString(string(raw), `$1"[secret]"`))
}

// passwords are those of BGP peer groups, which belong in a request but not in a log. The API allows no quotes in them.
var passwords = regexp.MustCompile(`("password"\s*:\s*)"[^"]*"`)

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
		if c.Secret != "" && strings.Contains(text, c.Secret) {
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
		if c.Secret != "" {
			text = strings.ReplaceAll(text, c.Secret, "[secret]")
		}
	}
	for value := range s.tokens {
		text = strings.ReplaceAll(text, value, "[token]")
	}
	return text
}

// assertInvariants holds the simulator against its own rules after every step; what is broken is its own
// fault. Objects whose state was edited to a word of the future are left out.
func (s *Sim) assertInvariants() {
	var live []*block
	for _, a := range s.accounts {
		for _, b := range a.blocks {
			live = append(live, b)
			s.assertBlock(a, b)
		}
		for _, n := range a.networks {
			s.assertNetwork(a, n)
		}
	}
	for i, b := range live {
		for _, other := range live[:i] {
			if related := b.parent == other.id || other.parent == b.id; b.cidr.Overlaps(other.cidr) && !related {
				s.violate(nil, "simulator", "blocks %s (%s) and %s (%s) overlap", b.id, b.cidr, other.id, other.cidr)
			}
		}
	}
}

// assertBlock: a block is in the list of exactly the resource that it names.
func (s *Sim) assertBlock(a *account, b *block) {
	if b.edited {
		return
	}
	holders := 0
	for _, n := range a.networks {
		if n.has(b.id) {
			holders++
			if b.resource != n.id {
				s.violate(nil, "simulator", "network %s lists block %s, which names resource %q", n.id, b.id,
					b.resource)
			}
		}
	}
	for _, srv := range a.servers {
		if slices.Contains(srv.ownBlocks, b.id) {
			holders++
		}
	}
	free := b.isFree()
	if holders > 1 || free != (b.resource == "") || (free && holders != 0) {
		s.violate(nil, "simulator", "block %s is %s, names resource %q and is held %d times", b.id, b.status,
			b.resource, holders)
	}
}

// assertNetwork: a network is BUSY exactly while changes are unfinished, and holds no more than it can.
func (s *Sim) assertNetwork(a *account, n *network) {
	if !n.edited && (n.status == networkBusy) != (n.changes > 0) {
		s.violate(nil, "simulator", "network %s is %s with %d unfinished changes", n.id, n.status, n.changes)
	}
	count := map[bool]int{}
	for _, id := range n.blocks {
		b := a.blocks[id]
		if b == nil {
			s.violate(nil, "simulator", "network %s lists block %s, which is gone", n.id, id)
			continue
		}
		count[b.isV6()]++
	}
	if count[false] > maxV4Blocks || count[true] > maxV6Blocks {
		s.violate(nil, "simulator", "network %s holds %d blocks of V4 and %d of V6", n.id, count[false], count[true])
	}
}
