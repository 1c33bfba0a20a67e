// Package version gives a program that was built without the Makefile the version that Go recorded in it. Import it for
// its effect in package main; the version is k8s.io/component-base/version.Get, as for a program that was stamped.
package version

import (
	"runtime/debug"
	"strings"

	"k8s.io/component-base/version"
)

// placeholder is part of the version of a program that was not stamped with the flags of the linker.
const placeholder = "$Format"

// undated is the version of a program in which Go recorded nothing, for example of a test.
const undated = "v0.0.0-devel"

// init is early enough for the metric of the version, which package k8s.io/component-base/metrics/prometheus/version
// registers at its own initialisation.
func init() {
	if !strings.Contains(version.Get().GitVersion, placeholder) {
		return
	}
	info, _ := debug.ReadBuildInfo()
	for _, candidate := range candidates(info) {
		if version.SetDynamicVersion(candidate) == nil {
			return
		}
	}
}

// candidates returns versions from the most precise one. The Kubernetes libraries accept v0.0.0 with any suffix,
// because a stamped version would be another one; so a tagged version becomes part of the suffix.
func candidates(info *debug.BuildInfo) []string {
	if info == nil {
		return []string{undated}
	}
	var all []string
	if main := info.Main.Version; strings.HasPrefix(main, "v") {
		all = append(all, main, "v0.0.0-"+strings.NewReplacer("+", "-").Replace(main))
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		dirty := ""
		if settings["vcs.modified"] == "true" {
			dirty = "-dirty"
		}
		all = append(all, "v0.0.0-g"+revision[:min(12, len(revision))]+dirty) // "g" as in git describe
	}
	return append(all, undated)
}
