package network_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var shop = network.Owner{Cluster: "c1", Namespace: "shop", Name: "web"}

// v1Tags are what phoenixnap/k8s-cloud-provider-bmc v1 put on a block of shop.
func v1Tags() map[string]string {
	return map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "c1",
		contract.TagServiceNamespace: "shop", contract.TagServiceName: "web",
	}
}

func with(tags map[string]string, changes ...string) map[string]string {
	tags = maps.Clone(tags)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			delete(tags, changes[i])
			continue
		}
		tags[changes[i]] = changes[i+1]
	}
	return tags
}

//proves:known-bugs/lookup-by-name
func TestOwnsOnlyWhatIsProvable(t *testing.T) {
	for _, test := range []struct {
		name         string
		tags         map[string]string
		bringYourOwn bool
		owns         bool
	}{
		{"our tags", shop.Tags(), false, true},
		{"our tags and one of the user", with(shop.Tags(), "team", "a"), false, true},
		{"tags of v1", v1Tags(), false, true},
		{"no tags", nil, false, false},
		{"brought by the account's owner", shop.Tags(), true, false},
		{"another cluster", with(shop.Tags(), contract.TagCluster, "c2"), false, false},
		{"no cluster", with(shop.Tags(), contract.TagCluster, ""), false, false},
		{"another usage", with(shop.Tags(), contract.TagUsage, "mine"), false, false},
		{"another Service", with(shop.Tags(), contract.TagService, "shop_api"), false, false},
		{"no Service", with(shop.Tags(), contract.TagService, ""), false, false},
		{"v1, another namespace", with(v1Tags(), contract.TagServiceNamespace, "prod"), false, false},
		{"v1, marked for deletion by v1", with(v1Tags(), contract.TagServiceName, "", contract.TagServiceNamespace, "",
			"delete", "true"), false, false},
		{"v1 tags beside our tag for another Service", with(v1Tags(), contract.TagService, "shop_api"), false, false},
		{"tags in other letters", with(shop.Tags(), contract.TagService, "SHOP_WEB"), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			block := network.Block{ID: "b", Tags: test.tags, BringYourOwn: test.bringYourOwn}
			if got := shop.Owns(block); got != test.owns {
				t.Errorf("owned is %t, want %t", got, test.owns)
			}
		})
	}
	if (network.Owner{Namespace: "shop", Name: "web"}).Owns(
		network.Block{Tags: with(shop.Tags(), contract.TagCluster, "")}) {
		t.Error("an owner without a cluster owns a block without a cluster")
	}
}

// TestOwnersShareNothing: of all owners at most one owns a block, whatever tags it carries together.
//
//proves:known-bugs/lookup-by-name
func TestOwnersShareNothing(t *testing.T) {
	owners := map[string]network.Owner{
		"web": shop, "api": {Cluster: "c1", Namespace: "shop", Name: "api"},
		"pool": {Cluster: "c1", Pool: "default"}, "another pool": {Cluster: "c1", Pool: "web"},
		"nodes": {Cluster: "c1", Nodes: "default"}, "another cluster's nodes": {Cluster: "c2", Nodes: "default"},
		"nodes of the west": network.NodesOwner("c1", "west"),
	}
	for _, test := range []struct {
		name string
		tags map[string]string
		want string
	}{
		{"a Service's", shop.Tags(), "web"},
		{"a pool's", owners["pool"].Tags(), "pool"},
		{"the nodes'", owners["nodes"].Tags(), "nodes"},
		{"the nodes' of the west", owners["nodes of the west"].Tags(), "nodes of the west"},
		{"a Service's, with a user's tag named pool", with(shop.Tags(), contract.TagPool, "default"), "web"},
		{"v1's, with a user's tag named nodes", with(v1Tags(), contract.TagNodes, "c1"), "web"},
		{"a pool's, with a user's tag named nodes", with(owners["pool"].Tags(), contract.TagNodes, "c1"), "pool"},
		{"the nodes of another cluster", with(owners["nodes"].Tags(), contract.TagNodes, "c2"), ""},
		{"a retained one", with(shop.Tags(), contract.TagRetain, "true"), "web"},
		{"no purpose", map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "c1"}, ""},
		{"an empty purpose", map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "c1",
			contract.TagService: "", contract.TagPool: "", contract.TagNodes: ""}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			for name, owner := range owners {
				if owner.Owns(network.Block{ID: "b", Tags: test.tags}) {
					got += name
				}
				if b := (network.Block{ID: "b", Tags: test.tags}); network.OfNodes("c1", b) !=
					strings.HasPrefix(test.want, "nodes") {
					t.Errorf("of nodes of the cluster: %t", network.OfNodes("c1", b))
				}
				if owner.Owns(network.Block{ID: "b", Tags: test.tags, BringYourOwn: true}) {
					t.Errorf("%s owns a block that was brought", name)
				}
			}
			if got != test.want {
				t.Errorf("owned by %q, want %q", got, test.want)
			}
		})
	}
}

func TestOwnersInWords(t *testing.T) {
	for want, owner := range map[string]network.Owner{
		"Service shop/web": shop, "pool default": {Cluster: "c1", Pool: "default"},
		"nodes": {Cluster: "c1", Nodes: "default"}, "nodes of west": network.NodesOwner("c1", "west"),
	} {
		if got := owner.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBrought(t *testing.T) {
	for _, test := range []struct {
		name    string
		tags    map[string]string
		brought []string
		want    bool
	}{
		{"tagged with the cluster", map[string]string{contract.TagCluster: "c1"}, nil, false},
		{"tagged with the cluster and brought", map[string]string{contract.TagCluster: "c1"}, []string{"b"}, true},
		{"tagged with another cluster and brought", map[string]string{contract.TagCluster: "c2"}, []string{"b"}, false},
		{"no tags", nil, nil, false},
		{"brought", nil, []string{"x", "b"}, true},
		{"another one brought", nil, []string{"x"}, false},
		{"bought by us", shop.Tags(), nil, false},
		{"bought by us and brought", shop.Tags(), []string{"b"}, false},
		{"bought by another cluster and brought", with(shop.Tags(), contract.TagCluster, "c2"), []string{"b"},
			false},
		{"another usage", with(shop.Tags(), contract.TagUsage, "mail"), []string{"b"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := network.Brought(network.Block{ID: "b", Tags: test.tags}, "c1",
				test.brought); got != test.want {
				t.Errorf("brought is %t, want %t", got, test.want)
			}
		})
	}
	if network.Brought(network.Block{ID: "b", Tags: map[string]string{contract.TagCluster: ""}}, "", nil) {
		t.Error("a block without a cluster is brought to a cluster without a UID")
	}
	if network.Brought(network.Block{}, "c1", []string{""}) {
		t.Error("the block without an ID is brought")
	}
}

func TestRetainTagsKeepAllOthers(t *testing.T) {
	block := network.Block{ID: "b", Tags: with(shop.Tags(), "team", "a")}
	kept, differ := network.RetainTags(block, true)
	if want := with(block.Tags, contract.TagRetain, contract.TagTrue); !differ || !maps.Equal(kept, want) {
		t.Errorf("tags are %v, want %v, differ %t", kept, want, differ)
	}
	again, differ := network.RetainTags(network.Block{Tags: kept}, true)
	if differ || !maps.Equal(again, kept) {
		t.Errorf("retaining twice differs: %v", again)
	}
	if back, differ := network.RetainTags(network.Block{Tags: kept}, false); !differ || !maps.Equal(back, block.Tags) {
		t.Errorf("tags are %v, want %v", back, block.Tags)
	}
}

// TestPartsMayBeNamed: a part was not bought, and so may be named, whatever tags it has from its parent.
func TestPartsMayBeNamed(t *testing.T) {
	cluster := map[string]string{contract.TagCluster: "c1"}
	for name, tc := range map[string]struct {
		block network.Block
		want  bool
	}{
		"brought, with the tag of the cluster": {network.Block{ID: "brought", Tags: cluster}, true},
		"bought":                               {network.Block{ID: "brought", Tags: shop.Tags()}, false},
		"a part of what was bought":            {network.Block{ID: "brought", Tags: shop.Tags(), Part: true}, true},
		"a part that is not brought":           {network.Block{ID: "a", Part: true}, false},
		"managed, with the tag of the cluster": {network.Block{ID: "brought", Tags: cluster, SystemManaged: true}, false},
		"managed, and brought":                 {network.Block{ID: "brought", SystemManaged: true}, false},
		"a part that is brought":               {network.Block{ID: "brought", Part: true}, true},
		"divided, with the tag of the cluster": {network.Block{ID: "brought", Tags: cluster, Status: network.Subnetted}, true},
		"a part of what another cluster bought": {network.Block{ID: "brought",
			Tags: with(shop.Tags(), contract.TagCluster, "c2"), Part: true}, false},
	} {
		if got := network.Brought(tc.block, "c1", []string{"brought"}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
