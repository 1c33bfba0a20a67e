package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

const (
	// description and name mark what a survey makes, so that the next one finds what was left.
	description = "phoenixNAP conformance survey: safe to delete"
	name        = "conformance-survey"
	// size is the smallest block on sale.
	size = "/31"
)

// ErrDeclined reports that the purchase was not confirmed; nothing was changed.
var ErrDeclined = errors.New("the purchase was not confirmed")

// Buy buys the smallest block, moves it through its life, and gives everything back, also when something fails or ctx
// ends.
func (s *Survey) Buy(ctx context.Context) (err error) {
	if !s.options.Confirm(s.offer(ctx)) {
		return ErrDeclined
	}
	defer func() { err = errors.Join(err, s.CleanUp(context.WithoutCancel(ctx))) }()
	for _, step := range []func(context.Context) error{
		s.makeTag, s.buyBlock, s.unknownProperty, s.fromTag, s.eleventh, s.makeNetwork, s.vlanInUse, s.assign,
		s.deleteAssigned, s.join, s.unassign, s.notOfNetwork,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// offer describes what is about to be bought, with the price that the Billing API names.
func (s *Survey) offer(ctx context.Context) string {
	offer := fmt.Sprintf("one IPv4 block %s in %s, for some minutes, of which an hour is likely to be charged", size,
		s.options.Location)
	got := s.account.get(ctx, "/billing/v1/products?productCategory=PUBLIC_IP")
	if !got.accepted() {
		return offer + ". The Billing API does not report the price: see the price list in the portal"
	}
	for _, product := range got.list() {
		for _, plan := range objects(product, "plans") {
			price, isNumber := plan["price"].(float64)
			if isNumber && text(plan, "pricingModel") == "HOURLY" && text(plan, "location") == s.options.Location {
				offer += fmt.Sprintf(". %s: %g per %s", text(product, "productCode"), price,
					strings.ToLower(text(plan, "priceUnit")))
			}
		}
	}
	return offer
}

func (s *Survey) makeTag(ctx context.Context) error {
	got := s.account.do(ctx, http.MethodPost, tagsPath, map[string]any{"name": name, "isBillingTag": false})
	if got.code == http.StatusConflict {
		return nil // of an earlier survey
	}
	if !got.accepted() {
		return refused("a tag", got)
	}
	s.made.tag = text(got.object(), "id")
	return nil
}

// buyBlock buys once the tag can be used: it is not at once.
func (s *Survey) buyBlock(ctx context.Context) error {
	order := map[string]any{
		"location": s.options.Location, "cidrBlockSize": size, "description": description,
		"tags": []any{map[string]any{"name": name, "value": "one"}},
	}
	err := s.until(ctx, "buy an IP block", func() (bool, error) {
		got := s.account.do(ctx, http.MethodPost, blocksPath, order)
		switch {
		case got.accepted():
			s.made.block = text(got.object(), "id")
			s.options.Say("bought %s %s", s.made.block, text(got.object(), "cidr"))
			s.note("createStatus", text(got.object(), "status"), "the answer to the purchase")
			return true, nil
		case got.code == http.StatusBadRequest && strings.Contains(strings.ToLower(string(got.raw)), "tag"):
			return false, nil
		}
		if got.err != nil {
			return false, got.err
		}
		if full, err := s.quotaReached(ctx); err != nil || full {
			s.note("quotaCode", got.code, "%s", got)
			return false, errors.Join(err, refused("a block", got))
		}
		return false, refused("a block", got)
	})
	if err != nil {
		return err
	}
	return s.untilBlock(ctx, "unassigned")
}

func (s *Survey) quotaReached(ctx context.Context) (bool, error) {
	got := s.account.get(ctx, "/bmc/v1/quotas")
	for _, quota := range got.list() {
		if strings.Contains(strings.ToLower(text(quota, "name")), "ip") && text(quota, "status") != "WITHIN_LIMIT" {
			return true, got.err
		}
	}
	return false, got.err
}

// untilBlock waits until the block has the status, and learns on the way what it says while it is assigned.
func (s *Survey) untilBlock(ctx context.Context, status string) error {
	return s.until(ctx, "IP block "+s.made.block+" is to be "+status, func() (bool, error) {
		got := s.account.get(ctx, blocksPath+"/"+s.made.block)
		if got.err != nil {
			return false, got.err
		}
		block := got.object()
		if _, known := s.found["assignedIDFrom"]; !known && text(block, "status") == "assigning" {
			from := "assigned"
			if text(block, "assignedResourceId") != "" {
				from = "assigning"
			}
			s.note("assignedIDFrom", from, "while it is assigning the block names the network %q",
				text(block, "assignedResourceId"))
		}
		if text(block, "status") == "assigned" {
			s.assignedType(block)
		}
		return text(block, "status") == status, nil
	})
}

func (s *Survey) unknownProperty(ctx context.Context) error {
	got := s.account.do(ctx, http.MethodPatch, blocksPath+"/"+s.made.block,
		map[string]any{"description": description, "conformance": true})
	switch {
	case got.accepted():
		s.note("unknownProperty", "ignore", "a change with an unknown property is accepted")
	case got.code == http.StatusBadRequest:
		s.note("unknownProperty", "400", "a change with an unknown property: %s", got)
	}
	return got.err
}

func (s *Survey) fromTag(ctx context.Context) error {
	if _, known := s.found["tagFilter"]; known {
		return nil
	}
	return s.tagFilter(ctx, s.made.block, name, "one")
}

// eleventh offers the block to a network that is full.
func (s *Survey) eleventh(ctx context.Context) error {
	if s.options.FullNetwork == "" {
		return nil
	}
	got := s.account.do(ctx, http.MethodPost, networksPath+"/"+s.options.FullNetwork+"/ip-blocks",
		map[string]any{"id": s.made.block})
	if err := s.refusal("overLimit", got, "an eleventh block"); err != nil {
		return err
	}
	if got.accepted() {
		s.made.network = s.options.FullNetwork
		return fmt.Errorf("public network %s took the block: it is not full", s.options.FullNetwork)
	}
	return nil
}

// makeNetwork makes a network, and offers it the block while it is still BUSY.
func (s *Survey) makeNetwork(ctx context.Context) error {
	got := s.account.do(ctx, http.MethodPost, networksPath,
		map[string]any{"name": name, "location": s.options.Location, "description": description})
	if !got.accepted() {
		return refused("a public network", got)
	}
	network := got.object()
	s.made.network = text(network, "id")
	s.options.Say("made public network %s", s.made.network)
	if vlan, ok := network["vlanId"].(float64); ok {
		s.made.vlan = int(vlan)
	}
	if text(network, "status") != "BUSY" {
		return nil
	}
	offered := s.offerBlock(ctx)
	switch {
	case offered.accepted():
		s.made.assigned = true
		s.note("busy", "queue", "a network that is BUSY takes a block: %s", offered)
	case offered.code == http.StatusConflict:
		s.note("busy", "409", "a network that is BUSY: %s", offered)
	}
	return offered.err
}

func (s *Survey) offerBlock(ctx context.Context) answer {
	return s.account.do(ctx, http.MethodPost, networksPath+"/"+s.made.network+"/ip-blocks",
		map[string]any{"id": s.made.block})
}

func (s *Survey) vlanInUse(ctx context.Context) error {
	if s.made.vlan == 0 {
		return nil
	}
	got := s.account.do(ctx, http.MethodPost, networksPath, map[string]any{"name": name + "-2",
		"location": s.options.Location, "vlanId": s.made.vlan, "description": description})
	if got.accepted() {
		s.made.second = text(got.object(), "id")
	}
	return s.refusal("vlanInUse", got, "a network with a VLAN ID that is in use")
}

func (s *Survey) assign(ctx context.Context) error {
	if !s.made.assigned {
		if err := s.untilReady(ctx); err != nil {
			return err
		}
		got := s.offerBlock(ctx)
		if !got.accepted() {
			return refused("the block by its network", got)
		}
		s.made.assigned = true
	}
	s.options.Say("assigning %s to %s", s.made.block, s.made.network)
	if err := s.untilBlock(ctx, "assigned"); err != nil {
		return err
	}
	return s.untilReady(ctx)
}

func (s *Survey) untilReady(ctx context.Context) error {
	return s.until(ctx, "public network "+s.made.network+" is to be READY", func() (bool, error) {
		got := s.account.get(ctx, networksPath+"/"+s.made.network)
		return text(got.object(), "status") == "READY", got.err
	})
}

func (s *Survey) deleteAssigned(ctx context.Context) error {
	got := s.account.do(ctx, http.MethodDelete, blocksPath+"/"+s.made.block, nil)
	if err := s.refusal("deleteWrongState", got, "deleting a block that is assigned"); err != nil {
		return err
	}
	if got.accepted() {
		return errors.New("a block that was assigned could be deleted: nothing more can be found out with it")
	}
	return nil
}

// join joins the server with an address of the block, and tries to take the block away from it. Which of the two
// addresses of a /31 a server may have shows which one the gateway has.
func (s *Survey) join(ctx context.Context) error {
	if s.options.Server == "" {
		return nil
	}
	block := s.account.get(ctx, blocksPath+"/"+s.made.block)
	if block.err != nil {
		return block.err
	}
	cidr, err := netip.ParsePrefix(text(block.object(), "cidr"))
	if err != nil {
		return err
	}
	first := cidr.Masked().Addr()
	got := s.joinAs(ctx, first)
	if got.accepted() {
		s.note("first31IsGateway", "off", "a server may have the first address of %s", cidr)
	} else if got.code == http.StatusBadRequest {
		if got = s.joinAs(ctx, first.Next()); got.accepted() {
			s.note("first31IsGateway", "on", "a server may have the second address of %s, not the first", cidr)
		}
	}
	if !got.accepted() {
		return refused("the server by the network", got)
	}
	s.made.joined = true
	s.options.Say("joined server %s", s.options.Server)
	if err := s.untilMember(ctx, true); err != nil {
		return err
	}
	return s.refusal("memberAddress", s.takeBlock(ctx), "taking a block away from a member that has an address of it")
}

func (s *Survey) joinAs(ctx context.Context, address netip.Addr) answer {
	return s.account.do(ctx, http.MethodPost, s.membership(),
		map[string]any{"id": s.made.network, "ips": []string{address.String()}})
}

func (s *Survey) membership() string {
	return serversPath + "/" + s.options.Server + "/network-configuration/public-network-configuration/public-networks"
}

func (s *Survey) takeBlock(ctx context.Context) answer {
	return s.account.do(ctx, http.MethodDelete, networksPath+"/"+s.made.network+"/ip-blocks/"+s.made.block, nil)
}

func (s *Survey) notOfNetwork(ctx context.Context) error {
	return s.refusal("notOfNetwork", s.takeBlock(ctx), "taking a block off a network that does not have it")
}
