package release

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// Changelog is the page, below the root, that has a section for each version.
const Changelog = "CHANGELOG.md"

var (
	// section is the heading of a version: ## [2.0.0] - 2027-01-31.
	section  = regexp.MustCompile(`(?m)^## \[([^\]]+)\].*\n`)
	relative = regexp.MustCompile(`\]\(([^)#:\s]+(?:#[^)\s]*)?)\)`)
)

// Notes are what the changelog says about a version such as v2.0.0. Its links lead to the files of that version.
func Notes(changelog, version string) (string, error) {
	wanted := strings.TrimPrefix(version, "v")
	heads := section.FindAllStringSubmatchIndex(changelog, -1)
	for i, head := range heads {
		if changelog[head[2]:head[3]] != wanted {
			continue
		}
		end := len(changelog)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		text := strings.TrimSpace(changelog[head[1]:end])
		if text == "" {
			break
		}
		return relative.ReplaceAllString(text, "]("+site+"/blob/"+version+"/$1)") + "\n", nil
	}
	return "", fmt.Errorf("%s says nothing about %s: give what is under Unreleased the heading ## [%s] - <date>",
		Changelog, version, wanted)
}

// page is the directory whose files a GitHub release shows, notes the file with its text.
func (r Release) page() string { return r.Dir + "-github" }

func (r Release) notes() string { return r.Dir + "-notes.md" }

// Announce lays out what a GitHub release shows, and returns the command lines that sign its checksums and create it.
// It is an error if the changelog says nothing about the version; the files are laid out then, too.
func (r Release) Announce(version string) ([]image.Step, error) {
	files, err := r.flatten()
	if err != nil {
		return nil, fmt.Errorf("files of the GitHub release: %w", err)
	}
	changelog, err := os.ReadFile(filepath.Join(r.Root, Changelog))
	if err != nil {
		return nil, fmt.Errorf("notes of the release: %w", err)
	}
	notes, err := Notes(string(changelog), version)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.notes(), []byte(notes), 0o644); err != nil {
		return nil, fmt.Errorf("notes of the release: %w", err)
	}
	args := []string{"gh", "release", "create", version, "--verify-tag", "--title", version, "--notes-file", r.notes()}
	if strings.Contains(version, "-") {
		args = append(args, "--prerelease")
	}
	sums := files[len(files)-1]
	signature := sums + ".sigstore.json"
	return []image.Step{
		{Args: []string{"cosign", "sign-blob", "--yes", "--new-bundle-format", "--bundle", signature, sums}},
		{Args: append(append(args, files...), signature)},
	}, nil
}

// Manifests are the manifests that a GitHub release shows: their names there, and the files below the root of the
// source tree that they are made of.
func Manifests(root string) (map[string]string, error) {
	overlays, err := deploy.Overlays(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, source := range besides() {
		files[flatName(path.Join(manifests, name))] = filepath.Join(root, filepath.FromSlash(source))
	}
	for _, overlay := range overlays {
		files[flatName(path.Join(manifests, overlay, deploy.File))] = deploy.Rendered(root, overlay)
	}
	return files, nil
}

// flatten links the files of the release into one directory, because those of a GitHub release have no folders, and
// writes their checksums there, into the last file.
func (r Release) flatten() ([]string, error) {
	if err := errors.Join(os.RemoveAll(r.page()), os.MkdirAll(r.page(), 0o755)); err != nil {
		return nil, err
	}
	var files []string
	var sums strings.Builder
	err := filepath.WalkDir(r.Dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == checksums {
			return err
		}
		below, err := filepath.Rel(r.Dir, file)
		if err != nil {
			return err
		}
		name := flatName(filepath.ToSlash(below))
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		files = append(files, filepath.Join(r.page(), name))
		// Two files of one name are an error here.
		return os.Link(file, filepath.Join(r.page(), name))
	})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(r.page(), checksums)
	return append(files, list), os.WriteFile(list, []byte(sums.String()), 0o644)
}

// flatName is the last part of a path; an overlay's manifest is called like the overlay.
func flatName(below string) string {
	if folder, name := path.Split(below); name == deploy.File {
		return path.Base(folder) + path.Ext(name)
	}
	return path.Base(below)
}
