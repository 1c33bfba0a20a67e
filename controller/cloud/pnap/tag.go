package pnap

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
	"k8s.io/apimachinery/pkg/util/sets"
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
	ctx = withOperation(ctx, "list tags")
	known, err := list(ctx, c, "", "name", tagName, c.tags.TagsAPI.TagsGet(ctx).Execute)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(known, name) {
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

func tagName(o object) string { return o.text("name") }

// createTag treats a conflict as success: another client created the tag in the meantime.
func (c *Client) createTag(ctx context.Context, name string) error {
	ctx = withOperation(ctx, "create tag")
	tag := tagapi.NewTagCreate(name, false)
	tag.SetDescription("Used by the phoenixNAP cloud provider for Kubernetes")
	err := send(ctx, c, name, c.tags.TagsAPI.TagsPost(ctx).TagCreate(*tag).Execute)
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
	names sets.Set[string]
}

func (s *nameSet) holds(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names.HasAll(names...)
}

func (s *nameSet) add(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = s.names.Union(sets.New(names...))
}

func (s *nameSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.names)
}

// TagAssignments returns the values of the named tag by the ID of the IP block that has it. It is an index of the
// cluster's blocks that does not depend on the block list.
func (c *Client) TagAssignments(ctx context.Context, name string) (map[string]string, error) {
	ctx = withOperation(ctx, "list tags")
	whole := func(o object) object { return o }
	tags, err := list(ctx, c, name, "name", whole, c.tags.TagsAPI.TagsGet(ctx).Name(name).Execute)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, tag := range tags {
		if tagName(tag) != name {
			continue
		}
		for _, assignment := range tag.list("resourceAssignments") {
			if resource := assignment.text("resourceName"); strings.HasPrefix(resource, blockResource) {
				values[path.Base(resource)] = assignment.text("value")
			}
		}
	}
	return values, nil
}
