package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// goodbye bounds the end of a survey.
const goodbye = 20 * time.Minute

// made is what a survey made and has to undo.
type made struct {
	tag, block, network, second string
	vlan                        int
	assigned, joined            bool
}

// CleanUp undoes what the survey made, and what an earlier one left: the server leaves, the block is unassigned and
// deleted, networks and the tag go. It continues after a failure, and names what is left.
func (s *Survey) CleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	s.find(ctx)
	var problems []error
	for _, step := range []func(context.Context) error{s.leave, s.unassign, s.deleteBlock, s.deleteNetworks,
		s.deleteTag} {
		problems = append(problems, step(ctx))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("something is left and may cost money (IP block %q, networks %q and %q): run this again "+
			"with --clean-up, or use the portal: %w",
			s.made.block, s.made.network, s.made.second, err)
	}
	return nil
}

// find looks for what an earlier survey left, by the marks of a survey. What it cannot list it does not find.
func (s *Survey) find(ctx context.Context) {
	blocks := s.account.get(ctx, blocksPath)
	for _, block := range blocks.list() {
		if s.made.block == "" && text(block, "description") == description {
			s.made.block = text(block, "id")
			s.made.assigned = text(block, "assignedResourceId") != ""
		}
	}
	networks := s.account.get(ctx, networksPath)
	for _, network := range networks.list() {
		switch {
		case text(network, "description") != description:
		case text(network, "name") == name && s.made.network == "":
			s.made.network = text(network, "id")
			s.made.joined = s.options.Server != "" && inNetwork(network, s.options.Server)
		case text(network, "name") == name+"-2" && s.made.second == "":
			s.made.second = text(network, "id")
		}
	}
	tags := s.account.get(ctx, tagsPath+"?name="+name)
	for _, tag := range tags.list() {
		if text(tag, "name") == name {
			s.made.tag = text(tag, "id")
		}
	}
}

func (s *Survey) leave(ctx context.Context) error {
	if !s.made.joined {
		return nil
	}
	err := s.insist(ctx, "end the membership of server "+s.options.Server, func() answer {
		return s.account.do(ctx, http.MethodDelete, s.membership()+"/"+s.made.network, nil)
	})
	if err != nil {
		return err
	}
	err = s.untilMember(ctx, false)
	s.made.joined = err != nil
	return err
}

// insist asks until the service accepts: while something else is changing it answers 409.
func (s *Survey) insist(ctx context.Context, what string, ask func() answer) error {
	return s.until(ctx, what, func() (bool, error) {
		got := ask()
		if !got.accepted() && got.code != http.StatusConflict {
			return false, refused("this", got)
		}
		return got.accepted(), nil
	})
}

// untilMember waits until both the server and the network report that it is a member, or that it is none: they may
// disagree for a while.
func (s *Survey) untilMember(ctx context.Context, member bool) error {
	return s.until(ctx, fmt.Sprintf("server %s is to be a member: %v", s.options.Server, member), func() (bool, error) {
		server := s.account.get(ctx, serversPath+"/"+s.options.Server)
		network := s.account.get(ctx, networksPath+"/"+s.made.network)
		return inServer(server.object(), s.made.network) == member &&
			inNetwork(network.object(), s.options.Server) == member, errors.Join(server.err, network.err)
	})
}

func inServer(server map[string]any, network string) bool {
	configuration, _ := server["networkConfiguration"].(map[string]any)
	public, _ := configuration["publicNetworkConfiguration"].(map[string]any)
	for _, each := range objects(public, "publicNetworks") {
		if text(each, "id") == network {
			return text(each, "statusDescription") != "in-progress"
		}
	}
	return false
}

func inNetwork(network map[string]any, server string) bool {
	return slices.ContainsFunc(objects(network, "memberships"),
		func(member map[string]any) bool { return text(member, "resourceId") == server })
}

// unassign takes the block off its network, after the server.
func (s *Survey) unassign(ctx context.Context) error {
	if err := s.leave(ctx); err != nil || !s.made.assigned {
		return err
	}
	if err := s.untilReady(ctx); err != nil {
		return err
	}
	if err := s.insist(ctx, "unassign IP block "+s.made.block,
		func() answer { return s.takeBlock(ctx) }); err != nil {
		return err
	}
	if err := s.untilBlock(ctx, "unassigned"); err != nil {
		return err
	}
	s.made.assigned = false
	return s.untilReady(ctx)
}

// deleteBlock deletes the block; for a while after it was unassigned that may be refused.
func (s *Survey) deleteBlock(ctx context.Context) error {
	if s.made.block == "" {
		return nil
	}
	return s.until(ctx, "delete IP block "+s.made.block, func() (bool, error) {
		got := s.account.do(ctx, http.MethodDelete, blocksPath+"/"+s.made.block, nil)
		if got.err != nil {
			return false, got.err
		}
		if got.accepted() {
			s.options.Say("deleted %s", s.made.block)
			s.made.block = ""
			return true, nil
		}
		read := s.account.get(ctx, blocksPath+"/"+s.made.block)
		gone := read.code == http.StatusForbidden || read.code == http.StatusNotFound
		if gone {
			s.made.block = ""
		}
		return gone, read.err
	})
}

func (s *Survey) deleteNetworks(ctx context.Context) error {
	var problems []error
	for _, id := range []*string{&s.made.network, &s.made.second} {
		if *id == "" || *id == s.options.FullNetwork {
			continue
		}
		problems = append(problems, s.until(ctx, "delete public network "+*id, func() (bool, error) {
			got := s.account.do(ctx, http.MethodDelete, networksPath+"/"+*id, nil)
			return got.accepted() || got.code == http.StatusForbidden || got.code == http.StatusNotFound, got.err
		}))
		if problems[len(problems)-1] == nil {
			s.options.Say("deleted %s", *id)
			*id = ""
		}
	}
	return errors.Join(problems...)
}

func (s *Survey) deleteTag(ctx context.Context) error {
	if s.made.tag == "" {
		return nil
	}
	if got := s.account.do(ctx, http.MethodDelete, tagsPath+"/"+s.made.tag, nil); !got.accepted() {
		return refused("to delete the tag "+name, got)
	}
	return nil
}
