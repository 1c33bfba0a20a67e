//go:build linux && e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/machine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// packJudges adds the images that Kubernetes' tests need, under the names by which their programs ask for them.
func (a *archives) packJudges(t *testing.T, b *image.Builder) {
	t.Helper()
	tests, err := tools.Binary(t.Context(), tools.EndToEndTests)
	check(t, err)
	references := listed(t, "registry.k8s.io/e2e-test-images/agnhost:", tests, "--list-images")
	const name = "agnhost"
	contents := filepath.Join(b.Dir, name)
	check(t, agnhost(t.Context(), contents))
	r := b.Request(image.Image{Name: name, Dockerfile: "test/scenario/e2e/Dockerfile.agnhost"}, references[0],
		image.Platforms()[:1])
	r.Context = contents
	check(t, b.Pack(t.Context(), r, a.path(name+".tar")))
	a.first = append(a.first, name+".tar")
	for _, other := range references[1:] { // some tests want an older one, too
		a.more[other] = references[0]
	}

	kubeadm, err := tools.Binary(t.Context(), "kubeadm")
	check(t, err)
	dns, err := tools.Binary(t.Context(), "coredns")
	check(t, err)
	version := listed(t, "v", kubeadm, "version", "-o=short")[0] // else kubeadm asks on the Internet
	references = listed(t, "/coredns:", kubeadm, "config", "images", "list", "--kubernetes-version="+version)
	a.first = append(a.first, a.pack(t, b, references[0], dns))
}

// listed are the lines with a text in them of those that a program prints, at least one.
func listed(t *testing.T, text, program string, args ...string) (found []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	check(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s %v prints no line with %q:\n%s", program, args, text, out)
	}
	return found
}

// agnhost puts together what the image holds.
func agnhost(ctx context.Context, dir string) error {
	program, err := tools.Binary(ctx, "agnhost")
	if err != nil {
		return err
	}
	if err := tools.Packages(ctx, "busybox", "dash", "curl", "wget", "nc.openbsd"); err != nil {
		return err
	}
	files := map[string]string{"/agnhost": program}
	for there, name := range map[string]string{
		// The shell of busybox would take its own nc and wget, which is linked statically and cannot resolve names.
		"/bin/busybox": "busybox", "/bin/sh": "dash", "/usr/bin/curl": "curl", "/usr/bin/wget": "wget",
		"/usr/bin/nc": "nc.openbsd",
	} {
		if files[there], err = tools.Program(name); err != nil {
			return err
		}
		for _, library := range machine.Libraries(ctx, files[there]) {
			files[library] = library
		}
	}
	for there, file := range files {
		if err := copyFile(filepath.Join(dir, there), file); err != nil {
			return err
		}
	}
	return linkApplets(ctx, dir)
}

// linkApplets makes every program of busybox that the image does not have itself a link to it.
func linkApplets(ctx context.Context, dir string) error {
	names, err := exec.CommandContext(ctx, filepath.Join(dir, "bin/busybox"), "--list").Output()
	if err != nil {
		return fmt.Errorf("programs of busybox: %w", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if _, err := os.Stat(filepath.Join(dir, "usr/bin", name)); err == nil {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
