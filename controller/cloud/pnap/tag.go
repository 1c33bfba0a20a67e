package pnap

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
)

// blockResource begins the name under which the Tag Manager API lists a tagged IP block.
const blockResource = "/ips/ip-blocks/"

// EnsureTags creates the named tags that do not exist in the account. A tag must exist before it can be set on a
// resource, and a new one may be rejected there for some seconds. Known names are not checked again until the API
// rejects tags with 400. In a dry run missing tags are ignored, so that the purchase that needs them can be reported.
func (c *Client) EnsureTags(ctx context.Context, names ...string) error {
	if c.tagNames.holds(names) {
		return nil
	}
	const op = "list tags"
	ctx = asking(ctx, op)
	body, err := request(ctx, c, op, "", c.tags.TagsAPI.TagsGet(ctx).Execute)
	if err != nil {
		return err
	}
	elements, err := decodeList(ctx, op, body, "name")
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(elements))
	for _, element := range elements {
		known[element.text("name")] = true
	}
	for _, name := range names {
		if known[name] {
			continue
		}
		if err := c.createTag(ctx, name); err != nil && !IsDryRun(err) {
			return err
		}
	}
	if !c.dryRun {
		c.tagNames.add(names)
	}
	return nil
}

// createTag treats a conflict as success: another client created the tag in the meantime.
func (c *Client) createTag(ctx context.Context, name string) error {
	const op = "create tag"
	ctx = asking(ctx, op)
	tag := tagapi.NewTagCreate(name, false)
	tag.SetDescription("Used by the phoenixNAP cloud provider for Kubernetes")
	_, err := request(ctx, c, op, name, c.tags.TagsAPI.TagsPost(ctx).TagCreate(*tag).Execute)
	if IsConflict(err) {
		return nil
	}
	return err
}

// forgetTagsAfter forgets which tags exist when a request with tags was rejected as invalid: another client may have
// deleted one.
func (c *Client) forgetTagsAfter(err error) {
	if statusOf(err) == http.StatusBadRequest {
		c.tagNames.clear()
	}
}

// nameSet is a set of names for concurrent use; its zero value is empty.
type nameSet struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *nameSet) holds(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !s.names[name] })
}

func (s *nameSet) add(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]bool{}
	}
	for _, name := range names {
		s.names[name] = true
	}
}

func (s *nameSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.names)
}

// TagAssignments returns the values of the named tag by the ID of the IP block that has it. It is an index of the
// cluster's blocks that does not depend on the block list.
func (c *Client) TagAssignments(ctx context.Context, name string) (map[string]string, error) {
	const op = "list tags"
	ctx = asking(ctx, op)
	body, err := request(ctx, c, op, name, c.tags.TagsAPI.TagsGet(ctx).Name(name).Execute)
	if err != nil {
		return nil, err
	}
	elements, err := decodeList(ctx, op, body, "name")
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, element := range elements {
		if element.text("name") != name {
			continue
		}
		for _, assignment := range element.list("resourceAssignments") {
			if resource := assignment.text("resourceName"); strings.HasPrefix(resource, blockResource) {
				values[path.Base(resource)] = assignment.text("value")
			}
		}
	}
	return values, nil
}
