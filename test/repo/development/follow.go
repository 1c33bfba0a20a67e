package development

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// parts are what a copy of the repository consists of.
const parts = "Makefile go.mod go.sum agent controller pkg deploy docs test"

// follow makes the changes of a walk-through in the repository at root and runs its commands. The last one is the test.
func (w Walkthrough) follow(ctx context.Context, root string) error {
	for _, s := range w.steps {
		if s.change != nil {
			if err := s.change.apply(root); err != nil {
				return fmt.Errorf("%s: %w", w.Title, err)
			}
		}
		for _, command := range s.commands {
			if err := run(ctx, root, command); err != nil {
				return fmt.Errorf("%s: %w", w.Title, err)
			}
		}
	}
	return nil
}

func run(ctx context.Context, root, command string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), tools.RunVariable+"=") // the sources change
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return nil
}

// Touched follows the walk-through with that title in a copy of the repository and names the files that are new or
// different then.
func Touched(ctx context.Context, root, title string) ([]string, error) {
	walkthroughs, err := Walkthroughs(root)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(walkthroughs, func(w Walkthrough) bool { return w.Title == title })
	if at < 0 {
		return nil, fmt.Errorf("%s has no section %q", Page, title)
	}
	elsewhere, err := workspace(ctx, root, title)
	defer os.RemoveAll(elsewhere) //nolint:errcheck // the system clears what is left of it
	if err != nil {
		return nil, err
	}
	if err := walkthroughs[at].follow(ctx, elsewhere); err != nil {
		return nil, err
	}
	return differences(root, elsewhere)
}

// workspace copies the repository to a temporary folder, which the caller removes also after an error. Its name is the
// same each time, unless it is in use: Go's build cache knows packages by their folders.
func workspace(ctx context.Context, root, title string) (string, error) {
	path := filepath.Join(os.TempDir(), "walkthrough-"+strings.ReplaceAll(strings.ToLower(title), " ", "-"))
	if os.Mkdir(path, 0o700) != nil {
		var err error
		if path, err = os.MkdirTemp("", "walkthrough-"); err != nil {
			return path, fmt.Errorf("copy the repository: %w", err)
		}
	}
	return path, run(ctx, root, fmt.Sprintf("cp -R %s '%s'", parts, path))
}

// differences names the files of the copy that the original has with other content, or not at all.
func differences(original, changed string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(changed, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(changed, path)
		if err != nil {
			return err
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before, err := os.ReadFile(filepath.Join(original, name))
		if err != nil || string(before) != string(have) {
			names = append(names, strings.ReplaceAll(name, `\`, "/"))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare the copy with the repository: %w", err)
	}
	return names, nil
}
