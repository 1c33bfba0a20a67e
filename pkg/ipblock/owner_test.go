package ipblock_test

import (
	"maps"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

var shop = ipblock.Owner{Cluster: "c1", Namespace: "shop", Name: "web"}

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
		{"v1, marked for deletion by v1", with(v1Tags(), contract.TagServiceName, "", contract.TagServiceNamespace, "", "delete", "true"), false, false},
		{"v1 tags beside our tag for another Service", with(v1Tags(), contract.TagService, "shop_api"), false, false},
		{"tags in other letters", with(shop.Tags(), contract.TagService, "SHOP_WEB"), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			block := ipblock.Block{ID: "b", Tags: test.tags, BringYourOwn: test.bringYourOwn}
			if got := shop.Owns(block); got != test.owns {
				t.Errorf("owned is %t, want %t", got, test.owns)
			}
		})
	}
	if (ipblock.Owner{Namespace: "shop", Name: "web"}).Owns(ipblock.Block{Tags: with(shop.Tags(), contract.TagCluster, "")}) {
		t.Error("an owner without a cluster owns a block without a cluster")
	}
}
