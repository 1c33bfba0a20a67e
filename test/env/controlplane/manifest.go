package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools/subprocess"
)

// Read reads manifests. A path is a file, a directory with a kustomization, which kubectl renders, or a
// directory whose YAML and JSON files are taken in the order of their names, as kubectl apply does.
func Read(ctx context.Context, paths ...string) ([]Manifest, error) {
	var manifests []Manifest
	for _, path := range paths {
		read, err := readPath(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("read the manifests %s: %w", path, err)
		}
		manifests = append(manifests, read...)
	}
	return manifests, nil
}

func readPath(ctx context.Context, path string) ([]Manifest, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return readFiles(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(entries, isKustomization) {
		return render(ctx, path)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return readFiles(files...)
}

func readFiles(paths ...string) ([]Manifest, error) {
	var manifests []Manifest
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, Manifest{Name: path, Data: data})
	}
	return manifests, nil
}

// isKustomization reports whether a file makes its directory one for kustomize.
func isKustomization(entry os.DirEntry) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, entry.Name())
}

// render has kubectl build a kustomization.
func render(ctx context.Context, dir string) ([]Manifest, error) {
	kubectl, err := tools.Binary(ctx, "kubectl")
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", dir)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := subprocess.Run(cmd); err != nil {
		return nil, fmt.Errorf("kubectl kustomize: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return []Manifest{{Name: dir, Data: stdout.Bytes()}}, nil
}
