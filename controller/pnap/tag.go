package pnap

import (
	"context"
	"path"
	"strings"

	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
)

// blockResource begins the name under which the Tag Manager API lists a tagged IP block.
const blockResource = "/ips/ip-blocks/"

// EnsureTags creates those of the named tags that the account lacks. A tag must exist before it can be
// put on a resource, and a fresh one may be refused there for some seconds.
func (c *Client) EnsureTags(ctx context.Context, names ...string) error {
	const op = "list tags"
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
		if err := c.createTag(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// createTag takes a conflict for success: somebody else created the tag in between.
func (c *Client) createTag(ctx context.Context, name string) error {
	tag := tagapi.NewTagCreate(name, false)
	tag.SetDescription("Used by the phoenixNAP cloud provider for Kubernetes")
	_, err := request(ctx, c, "create tag", name, c.tags.TagsAPI.TagsPost(ctx).TagCreate(*tag).Execute)
	if IsConflict(err) {
		return nil
	}
	return err
}

// TagAssignments returns the values of the named tag by the ID of the IP block that carries it. It is
// an index of our blocks that does not depend on the block list.
func (c *Client) TagAssignments(ctx context.Context, name string) (map[string]string, error) {
	const op = "list tags"
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
