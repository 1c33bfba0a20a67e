package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
)

// File is the name that users apply, below the directory of its overlay.
const File = "deployment.yaml"

// Overlays are the names of the overlays below root/deploy/overlays, in their order.
func Overlays(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, "deploy", "overlays"))
	if err != nil {
		return nil, fmt.Errorf("find the overlays: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Render is the text of an overlay's File.
func Render(ctx context.Context, root, overlay string) ([]byte, error) {
	manifests, err := controlplane.Read(ctx, filepath.Join(root, "deploy", "overlays", overlay))
	if err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, "# Made by `make manifests` from deploy/overlays/%s, which explains it. Do not edit.\n",
		overlay)
	for _, m := range manifests {
		text = append(text, m.Data...)
	}
	return text, nil
}

// Rendered is where an overlay's File is kept.
func Rendered(root, overlay string) string {
	return filepath.Join(root, "deploy", "rendered", overlay, File)
}

// Write renders every overlay to its File, and brings the chart up to date.
func Write(ctx context.Context, root string) error {
	overlays, err := Overlays(root)
	if err != nil {
		return err
	}
	for _, overlay := range overlays {
		text, err := Render(ctx, root, overlay)
		if err != nil {
			return err
		}
		path := Rendered(root, overlay)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return CopyToChart(root)
}

// tagLine is where the base says the version of an image.
var tagLine = regexp.MustCompile(`(?m)^(    newTag: )(\S+)$`)

// tagPattern is a version as tags of this project have it (https://semver.org).
var tagPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// Stamp writes the version of the images into the base and into the chart.
func Stamp(root, version string) error {
	if !tagPattern.MatchString(version) {
		return fmt.Errorf("version %q: want one such as v2.0.0", version)
	}
	path := filepath.Join(root, "deploy", "base", "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("stamp the version: %w", err)
	}
	if !tagLine.Match(text) {
		return fmt.Errorf("stamp the version: %s has no line newTag", path)
	}
	if err := os.WriteFile(path, tagLine.ReplaceAll(text, []byte("${1}"+version)), 0o644); err != nil {
		return err
	}
	return stampChart(root, version)
}
