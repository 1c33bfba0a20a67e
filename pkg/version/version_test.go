package version

import (
	"runtime/debug"
	"strings"
	"testing"

	"k8s.io/component-base/version"
)

func TestVersionOfAProgramThatWasNotStamped(t *testing.T) {
	if got := version.Get().GitVersion; strings.Contains(got, placeholder) || !strings.HasPrefix(got, "v0.0.0-") {
		t.Errorf("version %q", got)
	}
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"},
		{Key: "vcs.modified", Value: "true"}}
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"nothing recorded": {want: undated},
		"a test":           {info: &debug.BuildInfo{}, want: undated},
		"no repository":    {info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: undated},
		"an untagged commit": {
			info: &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122101112-0123456789ab+dirty"}},
			want: "v0.0.0-20261122101112-0123456789ab+dirty",
		},
		"a tag": {info: &debug.BuildInfo{Main: debug.Module{Version: "v2.1.0"}, Settings: revision},
			want: "v0.0.0-v2.1.0"},
		"a tag with metadata": {info: &debug.BuildInfo{Main: debug.Module{Version: "v2.1.0+dirty"}},
			want: "v0.0.0-v2.1.0-dirty"},
		"only the commit": {info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: revision},
			want: "v0.0.0-g0123456789ab-dirty"},
	} {
		accepted := ""
		for _, candidate := range candidates(test.info) {
			if err := version.ValidateDynamicVersion(candidate); err == nil {
				accepted = candidate
				break
			}
		}
		if accepted != test.want {
			t.Errorf("%s: version %q of %q, want %q", name, accepted, candidates(test.info), test.want)
		}
	}
}
