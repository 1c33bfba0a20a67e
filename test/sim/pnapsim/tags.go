package pnapsim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// tagText is the form of tag names and values (Tag Manager API, schema TagCreate). The document's
// class A-z admits six more characters by accident; they are refused here.
var tagText = regexp.MustCompile(`^[A-Za-zÀ-ú0-9_-]{1,100}$`)

// tagBody is the body that makes or changes a tag.
type tagBody struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Billing     bool   `json:"isBillingTag"`
}

// assignmentBody is a tag in a request that tags a resource.
type assignmentBody struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (a *account) tagNamed(name string) *tag {
	for _, t := range a.tags {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (s *Sim) listTags(c *call) reply {
	name := c.query.Get("name")
	return listing(inOrder(c.account.tags), func(t *tag) bool { return name == "" || name == t.name },
		func(t *tag) object { return s.tagView(c.account, t) })
}

func (*Sim) tagView(a *account, t *tag) object {
	assigned := []any{}
	values := []string{}
	note := func(name string, list []assignment) {
		for _, one := range list {
			if one.tagID != t.id {
				continue
			}
			view := object{"resourceName": name}
			if one.value != "" {
				view["value"] = one.value
				values = append(values, one.value)
			}
			assigned = append(assigned, view)
		}
	}
	for _, b := range inOrder(a.blocks) {
		note("/ips/ip-blocks/"+b.id, b.tags)
	}
	for _, srv := range inOrder(a.servers) {
		note("/bmc/servers/"+srv.id, srv.tags)
	}
	slices.Sort(values)
	view := object{
		"id": t.id, "name": t.name, "isBillingTag": t.billing, "createdBy": "USER",
		"values": slices.Compact(values), "resourceAssignments": assigned,
	}
	optional(view, "description", t.description)
	return view
}

func (s *Sim) createTag(c *call, a *account, body tagBody) reply {
	if !tagText.MatchString(body.Name) {
		return invalid(fmt.Sprintf("name %q: want 1 to 100 letters, digits, - or _", body.Name))
	}
	if a.tagNamed(body.Name) != nil {
		return conflict(fmt.Sprintf("Tag %q exists.", body.Name))
	}
	t := s.addTag(a, body)
	t.usableAt = s.now.Add(time.Duration(s.latency.TagPropagation))
	return reply{status: http.StatusCreated, body: s.tagView(a, t)}
}

func (s *Sim) addTag(a *account, body tagBody) *tag {
	t := &tag{made: s.make(s.newID()), name: body.Name, description: body.Description, billing: body.Billing}
	a.tags[t.id] = t
	return t
}

func (s *Sim) patchTag(c *call, t *tag, body tagBody) reply {
	if !tagText.MatchString(body.Name) {
		return invalid(fmt.Sprintf("name %q: want 1 to 100 letters, digits, - or _", body.Name))
	}
	if other := c.account.tagNamed(body.Name); other != nil && other != t {
		return conflict(fmt.Sprintf("Tag %q exists.", body.Name))
	}
	t.name = body.Name
	t.description = body.Description
	t.billing = body.Billing
	return reply{status: http.StatusOK, body: s.tagView(c.account, t)}
}

func (s *Sim) deleteTag(c *call, t *tag) reply {
	s.judgeTagDeletion(c, t)
	delete(c.account.tags, t.id)
	gone := func(one assignment) bool { return one.tagID == t.id }
	for _, b := range c.account.blocks {
		b.tags = slices.DeleteFunc(b.tags, gone)
	}
	for _, srv := range c.account.servers {
		srv.tags = slices.DeleteFunc(srv.tags, gone)
	}
	return reply{status: http.StatusOK, body: object{"result": "The tag has been deleted.", "tagId": t.id}}
}

// resolveTags turns a request's tags into assignments; a tag that is not there, or not yet, is a fault.
func (s *Sim) resolveTags(a *account, bodies []assignmentBody) (list []assignment, faults []string) {
	for _, body := range bodies {
		t := a.tagNamed(body.Name)
		switch {
		case t == nil || s.now.Before(t.usableAt):
			faults = append(faults, fmt.Sprintf("Tag %q does not exist.", body.Name))
		case body.Value != "" && !tagText.MatchString(body.Value):
			faults = append(faults, fmt.Sprintf("value %q of tag %q: want 1 to 100 letters, digits, - or _", body.Value,
				body.Name))
		case slices.ContainsFunc(list, func(one assignment) bool { return one.tagID == t.id }):
			faults = append(faults, fmt.Sprintf("Tag %q is named twice.", body.Name))
		default:
			list = append(list, assignment{tagID: t.id, value: body.Value})
		}
	}
	return list, faults
}

// assignmentsView is a resource's tags as the API returns them.
func assignmentsView(a *account, list []assignment) []any {
	out := []any{}
	for _, one := range list {
		t := a.tags[one.tagID]
		if t == nil {
			continue
		}
		view := object{"id": t.id, "name": t.name, "isBillingTag": t.billing, "createdBy": "USER"}
		optional(view, "value", one.value)
		out = append(out, view)
	}
	return out
}

// tagMap is a resource's tags by name.
func tagMap(a *account, list []assignment) map[string]string {
	out := map[string]string{}
	for _, one := range list {
		if t := a.tags[one.tagID]; t != nil {
			out[t.name] = one.value
		}
	}
	return out
}

// tagFilter reads the query parameters "tag", each in the form tagName.tagValue, and reports whether the tags of a
// resource pass all of them, or any with the switch "or".
func (s *Sim) tagFilter(c *call) (passes func([]assignment) bool, faults []string) {
	raw := c.query["tag"]
	for _, text := range raw {
		name, value, ok := strings.Cut(text, ".")
		if !ok || !tagText.MatchString(name) || !tagText.MatchString(value) {
			faults = append(faults, fmt.Sprintf("tag %q: want the form tagName.tagValue", text))
		}
	}
	return func(list []assignment) bool {
		tags := tagMap(c.account, list)
		has := func(text string) bool {
			name, want, _ := strings.Cut(text, ".")
			value, tagged := tags[name]
			return tagged && value == want
		}
		if s.switches.TagFilter == "or" {
			return len(raw) == 0 || slices.ContainsFunc(raw, has)
		}
		return !slices.ContainsFunc(raw, func(text string) bool { return !has(text) })
	}, faults
}
