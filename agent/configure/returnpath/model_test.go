//go:build linux

package returnpath

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
)

// model is a kernel in memory: it rejects what the kernel rejects.
type model struct {
	observed
	// touched are actions on what does not belong to the agent.
	touched []string
}

var errExists = errors.New("file exists")

func (m *model) addRule(r rule) error {
	made := kernelRule{rule: r, protocol: ownership.Protocol}
	if slices.ContainsFunc(m.rules, func(s kernelRule) bool {
		return s.rule == made.rule && s.protocol == made.protocol && s.hasExtras == made.hasExtras
	}) {
		return errExists
	}
	m.rules = append(m.rules, made)
	return nil
}

func (m *model) deleteRule(r kernelRule) error {
	if belongsToOthers(r) {
		m.touched = append(m.touched, r.String())
	}
	i := slices.IndexFunc(m.rules, func(s kernelRule) bool {
		return s.rule == r.rule && s.protocol == r.protocol && s.hasExtras == r.hasExtras
	})
	if i < 0 {
		return errors.New("no such rule")
	}
	m.rules = slices.Delete(m.rules, i, i+1)
	return nil
}

func (m *model) setRoute(r route) error {
	if l := m.linkIndexed(r.link); l == nil || !l.up {
		return errors.New("network is down")
	}
	m.routes = slices.DeleteFunc(m.routes, func(s kernelRoute) bool {
		if s.place() == r.place() && !s.ours() {
			m.touched = append(m.touched, s.String())
		}
		return s.place() == r.place()
	})
	m.routes = append(m.routes, kernelRoute{route: r, protocol: ownership.Protocol})
	return nil
}

func (m *model) deleteRoute(r kernelRoute) error {
	if !r.ours() {
		m.touched = append(m.touched, r.String())
	}
	i := slices.IndexFunc(m.routes, func(s kernelRoute) bool { return s.route == r.route && s.protocol == r.protocol })
	if i < 0 {
		return errors.New("no such route")
	}
	m.routes = slices.Delete(m.routes, i, i+1)
	return nil
}

func (m *model) setRuleset(r ruleset) error {
	m.ruleset = r.lines()
	return nil
}

func (m *model) loosen(l link) error {
	own := m.linkIndexed(l.index)
	if own == nil {
		return errors.New("no such device")
	}
	own.strict = false
	return nil
}

func (m *model) linkIndexed(index int) *link {
	for _, l := range m.vlans {
		if l != nil && l.index == index {
			return l
		}
	}
	return nil
}

func (m *model) apply(t *testing.T, actions []action) {
	t.Helper()
	for _, a := range actions {
		if err := a.do(m); err != nil {
			t.Errorf("%s: %v", a.text, err)
		}
	}
}

// belongsToOthers decides by the numbers that the documentation lists.
func belongsToOthers(r kernelRule) bool {
	return r.protocol != ownership.Protocol || (r.priority < 1055 || r.priority > 1057) && r.priority != 32768
}

func (m *model) foreign() string {
	var all []string
	for _, r := range m.rules {
		if belongsToOthers(r) {
			all = append(all, fmt.Sprint(r.rule, r.protocol))
		}
	}
	for _, r := range m.routes {
		if !r.ours() {
			all = append(all, fmt.Sprint(r.route, r.protocol))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
