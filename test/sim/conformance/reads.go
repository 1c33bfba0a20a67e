package conformance

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

const (
	blocksPath   = "/ips/v1/ip-blocks"
	networksPath = "/networks/v1/public-networks"
	serversPath  = "/bmc/v1/servers"
	tagsPath     = "/tag-manager/v1/tags"
	locationPath = "/location-api/v1/locations"
	// absent is an ID that does not exist.
	absent = "/ffffffffffffffffffffffff"
)

// Read asks what can be found out without changing anything.
func (s *Survey) Read(ctx context.Context) error {
	for _, ask := range []func(context.Context) error{s.tokenRefusal, s.scopes, s.missingResource, s.extraFields,
		s.ofBlocks, s.ofServers} {
		if err := ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Survey) tokenRefusal(ctx context.Context) error {
	got := s.account.login(ctx, s.account.ClientSecret+"x", allScopes)
	return s.refusal("tokenRefusal", got, "a token for a wrong secret")
}

// scopes asks for tags with a token that is not for tags.
func (s *Survey) scopes(ctx context.Context) error {
	token := s.account.login(ctx, s.account.ClientSecret, "bmc.read")
	if !token.accepted() {
		return token.err
	}
	got := s.account.ask(ctx, text(token.object(), "access_token"), http.MethodGet, tagsPath, nil)
	switch {
	case got.accepted():
		s.note("scopes", "loose", "a token for bmc.read lists tags")
	case got.code == http.StatusForbidden || got.code == http.StatusUnauthorized:
		s.note("scopes", "strict", "a token for bmc.read lists no tags: %s", got)
	}
	return got.err
}

func (s *Survey) missingResource(ctx context.Context) error {
	return s.refusal("missing", s.account.get(ctx, blocksPath+absent), "an IP block that does not exist")
}

// documented are the properties of the schemas in question (Locations API: Location; IP API: IpBlock).
func documented(path string) []string {
	if path == locationPath {
		return []string{"location", "locationDescription", "productCategories"}
	}
	return []string{
		"id", "location", "cidrBlockSize", "cidr", "ipVersion", "status", "parentIpBlockAllocationId",
		"assignedResourceId", "assignedResourceType", "description", "tags", "isSystemManaged", "isBringYourOwn",
		"createdOn",
	}
}

// extraFields looks for properties that no document names.
func (s *Survey) extraFields(ctx context.Context) error {
	seen := 0
	for _, path := range []string{locationPath, blocksPath} {
		got := s.account.get(ctx, path)
		if got.err != nil {
			return got.err
		}
		for _, each := range got.list() {
			seen++
			for name := range each {
				if !slices.Contains(documented(path), name) {
					s.note("extraFields", "on", "%s has the property %q, which its document does not name", path, name)
					return nil
				}
			}
		}
	}
	if seen > 0 {
		s.note("extraFields", "off", "%d objects have no property that their documents do not name", seen)
	}
	return nil
}

// ofBlocks learns from the blocks that are there.
func (s *Survey) ofBlocks(ctx context.Context) error {
	got := s.account.get(ctx, blocksPath)
	if !got.accepted() {
		return refused("the list of IP blocks", got)
	}
	for _, block := range got.list() {
		s.assignedType(block)
		for _, tag := range objects(block, "tags") {
			if _, known := s.found["tagFilter"]; !known && text(tag, "value") != "" {
				if err := s.tagFilter(ctx, text(block, "id"), text(tag, "name"), text(tag, "value")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// assignedType notes the word for a network.
func (s *Survey) assignedType(block map[string]any) {
	word := text(block, "assignedResourceType")
	if strings.ReplaceAll(strings.ToLower(word), "_", " ") == "public network" {
		s.note("assignedType", word, "IP block %s says so", text(block, "id"))
	}
}

// tagFilter asks for blocks with two tags, of which the given one has only the first.
func (s *Survey) tagFilter(ctx context.Context, id, name, value string) error {
	query := url.Values{"tag": {name + "." + value, name + "." + value + "-none"}}
	got := s.account.get(ctx, blocksPath+"?"+query.Encode())
	if !got.accepted() {
		return got.err
	}
	if slices.ContainsFunc(got.list(), func(b map[string]any) bool { return text(b, "id") == id }) {
		s.note("tagFilter", "or", "a block with one of two tags is listed")
	} else {
		s.note("tagFilter", "and", "a block with one of two tags is not listed")
	}
	return nil
}

// ofServers learns which address of its own /31 a server has as its gateway.
func (s *Survey) ofServers(ctx context.Context) error {
	got := s.account.get(ctx, serversPath)
	for _, server := range got.list() {
		network, _ := server["networkConfiguration"].(map[string]any)
		own, _ := network["ipBlocksConfiguration"].(map[string]any)
		for _, block := range objects(own, "ipBlocks") {
			read := s.account.get(ctx, blocksPath+"/"+text(block, "id"))
			if read.err != nil {
				return read.err
			}
			s.gateway(text(read.object(), "cidr"), text(network, "gatewayAddress"))
		}
	}
	return got.err
}

func (s *Survey) gateway(cidr, gateway string) {
	block, err := netip.ParsePrefix(cidr)
	address, addressErr := netip.ParseAddr(gateway)
	if err != nil || addressErr != nil || block.Bits() != 31 || !block.Contains(address) {
		return
	}
	first := map[bool]string{true: "on", false: "off"}[address == block.Masked().Addr()]
	s.note("first31IsGateway", first, "the gateway of a server's own %s is %s", block, address)
}
