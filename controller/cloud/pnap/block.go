package pnap

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// BlockRequest is an IP block to buy.
type BlockRequest struct {
	Location    string            // the 3-letter code of the location
	Size        string            // the prefix length with its slash, such as "/29"
	Description string            // free text of at most 250 characters
	Tags        map[string]string // Tags by name; the names must exist (see EnsureTags)
}

// Blocks lists the IPv4 and IPv6 blocks of the account that have all the given tags. The request contains the tags as a
// filter, but the API does not document whether it combines several tags with "and", so the answer is filtered again.
func (c *Client) Blocks(ctx context.Context, tags map[string]string) ([]network.Block, error) {
	ctx = withOperation(ctx, "list IP blocks")
	query := c.blocks.IPBlocksAPI.IpBlocksGet(ctx)
	if len(tags) > 0 {
		query = query.Tag(tagFilter(tags))
	}
	blocks, err := list(ctx, c, "", "id", decodeBlock, query.Execute)
	if err != nil {
		return nil, err
	}
	for i, b := range blocks {
		blocks[i].Part = slices.ContainsFunc(blocks, func(p network.Block) bool { return p.ID == b.ParentID })
	}
	return slices.DeleteFunc(blocks, func(b network.Block) bool { return !carries(b.Tags, tags) }), nil
}

// Block returns the block with the given ID. Unlike the list it is never delayed. A parent that cannot be read is none
// of the account: what phoenixNAP sells may be a part of its own.
func (c *Client) Block(ctx context.Context, id string) (network.Block, error) {
	block, err := c.block(ctx, id)
	if err != nil || block.ParentID == "" {
		return block, err
	}
	_, err = c.block(ctx, block.ParentID)
	if block.Part = err == nil; IsInaccessible(err) {
		err = nil
	}
	return block, err
}

func (c *Client) block(ctx context.Context, id string) (network.Block, error) {
	ctx = withOperation(ctx, "get IP block")
	return get(ctx, c, id, decodeBlock, c.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(ctx, id).Execute)
}

// BuyBlock buys a block. It costs money and is not idempotent: after an error with IsUnanswered, the block may exist.
func (c *Client) BuyBlock(ctx context.Context, wanted BlockRequest) (network.Block, error) {
	ctx = withOperation(ctx, "buy IP block")
	name := wanted.Size + " in " + wanted.Location
	order := ipapi.NewIpBlockCreate(wanted.Location, wanted.Size)
	order.SetTags(tagRequests(wanted.Tags))
	if wanted.Description != "" {
		order.SetDescription(wanted.Description)
	}
	body, err := request(ctx, c, name, c.blocks.IPBlocksAPI.IpBlocksPost(ctx).IpBlockCreate(*order).Execute)
	if err != nil {
		c.judgeTags(err, wanted.Tags)
		return network.Block{}, err
	}
	element, err := decodeNew(operationOf(ctx), name, body)
	if err != nil {
		return network.Block{}, err
	}
	return decodeBlock(element), nil
}

// SetBlockTags replaces all tags of a block.
func (c *Client) SetBlockTags(ctx context.Context, id string, tags map[string]string) error {
	ctx = withOperation(ctx, "set tags of IP block")
	call := c.blocks.IPBlocksAPI.IpBlocksIpBlockIdTagsPut(ctx, id).TagAssignmentRequest(tagRequests(tags))
	err := send(ctx, c, id, call.Execute)
	c.judgeTags(err, tags)
	return err
}

// DeleteBlock deletes a block. The API only allows this for an unassigned block.
func (c *Client) DeleteBlock(ctx context.Context, id string) error {
	ctx = withOperation(ctx, "delete IP block")
	return send(ctx, c, id, c.blocks.IPBlocksAPI.IpBlocksIpBlockIdDelete(ctx, id).Execute)
}

func decodeBlock(o object) network.Block {
	cidr, _ := netip.ParsePrefix(o.text("cidr"))                // the zero Prefix with an error
	created, _ := time.Parse(time.RFC3339, o.text("createdOn")) // the zero Time with an error
	tags := map[string]string{}
	for _, tag := range o.list("tags") {
		if name := tag.text("name"); name != "" {
			tags[name] = tag.text("value")
		}
	}
	return network.Block{
		ID:            o.text("id"),
		Location:      o.text("location"),
		CIDR:          cidr,
		Status:        network.BlockStatus(o.text("status")),
		ResourceID:    o.text("assignedResourceId"),
		ResourceType:  foldResourceType(o.text("assignedResourceType")),
		Description:   o.text("description"),
		Tags:          tags,
		BringYourOwn:  o.flag("isBringYourOwn"),
		SystemManaged: o.flag("isSystemManaged"),
		ParentID:      o.text("parentIpBlockAllocationId"),
		CreatedOn:     created,
	}
}

// foldResourceType normalizes PUBLIC_NETWORK and "public network"; the API uses both.
func foldResourceType(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "_", " ")
}

func carries(have, want map[string]string) bool {
	for name, value := range want {
		if got, ok := have[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func tagFilter(tags map[string]string) []string {
	filter := make([]string, 0, len(tags))
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		filter = append(filter, name+"."+tags[name])
	}
	return filter
}

// tagRequests never returns nil: the SDK would send null, which is not a list.
func tagRequests(tags map[string]string) []ipapi.TagAssignmentRequest {
	requests := make([]ipapi.TagAssignmentRequest, 0, len(tags))
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		tag := ipapi.NewTagAssignmentRequest(name)
		if value := tags[name]; value != "" {
			tag.SetValue(value)
		}
		requests = append(requests, *tag)
	}
	return requests
}

// Network returns the public network with the given ID, with its blocks and members.
func (c *Client) Network(ctx context.Context, id string) (network.Network, error) {
	ctx = withOperation(ctx, "get public network")
	return get(ctx, c, id, decodeNetwork, c.networks.PublicNetworksAPI.PublicNetworksNetworkIdGet(ctx, id).Execute)
}

// AssignBlock assigns a block to a public network. The API answers before it is done: the status shows the progress.
func (c *Client) AssignBlock(ctx context.Context, networkID, blockID string) error {
	ctx = withOperation(ctx, "assign IP block")
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksPost(ctx, networkID).
		PublicNetworkIpBlockCreate(*networkapi.NewPublicNetworkIpBlockCreate(blockID))
	return send(ctx, c, blockID+" to public network "+networkID, call.Execute)
}

// UnassignBlock unassigns a block from a public network. It never uses the API's "force", which would disconnect a
// member that has an address of the block.
func (c *Client) UnassignBlock(ctx context.Context, networkID, blockID string) error {
	ctx = withOperation(ctx, "unassign IP block")
	call := c.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksIpBlockIdDelete(ctx, networkID, blockID)
	return send(ctx, c, blockID+" from public network "+networkID, call.Execute)
}

func decodeNetwork(o object) network.Network {
	public := network.Network{
		ID:       o.text("id"),
		Name:     o.text("name"),
		Location: o.text("location"),
		VLAN:     o.number("vlanId"),
		Status:   network.Status(o.text("status")),
	}
	for _, block := range o.list("ipBlocks") {
		cidr, _ := netip.ParsePrefix(block.text("cidr")) // the zero Prefix with an error
		public.Blocks = append(public.Blocks, network.ListedBlock{ID: block.text("id"), CIDR: cidr})
	}
	for _, member := range o.list("memberships") {
		if kind := member.text("resourceType"); kind != "" && foldResourceType(kind) != "server" {
			continue
		}
		public.Members = append(public.Members, network.Member{ServerID: member.text("resourceId"),
			IPs: member.addresses("ips")})
	}
	return public
}

// blockResource begins the name under which the Tag Manager API lists a tagged IP block.
const blockResource = "/ips/ip-blocks/"

// EnsureTags creates the named tags that do not exist in the account. A tag must exist before it can be set on a
// resource, and a new one may be rejected there for some seconds (see IsTagFresh). Known names are not checked again
// until the API rejects tags with 400. In a dry run missing tags are ignored, so that the purchase that needs them can
// be reported.
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
		c.tagNames.made(name, c.now())
	}
	if !c.dryRun {
		c.tagNames.add(names, c.now())
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

// judgeTags notes on a rejected request whether one of its tags may be too new. It forgets which tags exist: another
// client may have deleted one.
func (c *Client) judgeTags(err error, tags map[string]string) {
	rejected, ok := errors.AsType[*Error](err)
	if !ok || rejected.StatusCode != http.StatusBadRequest {
		return
	}
	rejected.freshTag = c.tagNames.fresh(tags, c.now().Add(-tagPropagation))
	c.tagNames.clear()
}

// tagPropagation is how long after its creation a tag may be rejected (phoenixNAP Tag Manager API, which is eventually
// consistent).
const tagPropagation = time.Minute

// tagMemory is which tags exist, and since when each is known to, for concurrent use; its zero value is empty. Another
// process may have made a tag right before this one saw it first, so the time of that counts.
type tagMemory struct {
	mu    sync.Mutex
	names sets.Set[string]
	since map[string]time.Time
}

func (m *tagMemory) holds(names []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names.HasAll(names...)
}

func (m *tagMemory) add(names []string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = m.names.Union(sets.New(names...))
	for _, name := range names {
		if m.since[name].IsZero() {
			m.date(name, now)
		}
	}
}

// made says that a tag was created at this moment.
func (m *tagMemory) made(name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.date(name, now)
}

// date is called with the lock held.
func (m *tagMemory) date(name string, at time.Time) {
	if m.since == nil {
		m.since = map[string]time.Time{}
	}
	m.since[name] = at
}

// fresh reports whether one of the tags is not known for longer than since the given time.
func (m *tagMemory) fresh(tags map[string]string, after time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range tags {
		if m.since[name].After(after) {
			return true
		}
	}
	return false
}

// clear forgets which tags exist, and not since when.
func (m *tagMemory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.names)
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
