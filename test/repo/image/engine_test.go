package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandLines(t *testing.T) {
	request := Request{
		Image: Images()[1], Stamp: Stamp{Version: "v1.2.3", Commit: "abc", Epoch: "1700000000"},
		Reference: "r.example/a:v1.2.3",
		Platforms: Platforms(), Root: "/src", Context: "/src",
	}
	prebuilt := request
	prebuilt.Prebuilt = true
	prebuilt.Context = "/bin-dir"
	prebuilt.BaseImage = Scratch
	prebuilt.Push = true
	prebuilt.Platforms = Platforms()[1:]
	const arguments = "--file /src/Dockerfile.agent --build-arg VERSION=v1.2.3 --build-arg COMMIT=abc"
	for name, tc := range map[string]struct {
		engine  Engine
		request Request
		want    []string
	}{
		"docker": {Engine{Name: "docker"}, request, []string{
			"docker buildx build --tag r.example/a:v1.2.3 --provenance=false --sbom=false --build-arg " +
				"SOURCE_DATE_EPOCH=1700000000 --load " + arguments + " --platform linux/amd64,linux/arm64 /src",
		}},
		"docker pushes": {Engine{Name: "docker"}, prebuilt, []string{
			"docker buildx build --tag r.example/a:v1.2.3 --provenance=false --sbom=false --build-arg " +
				"SOURCE_DATE_EPOCH=1700000000 --push " + arguments +
				" --build-arg BASE_IMAGE=scratch --build-arg BINARY=prebuilt --platform linux/arm64 /bin-dir",
		}},
		"podman": {Engine{Name: "podman"}, request, []string{
			"podman manifest rm r.example/a:v1.2.3",
			"podman build --manifest r.example/a:v1.2.3 --timestamp 1700000000 --identity-label=false " + arguments +
				" --platform linux/amd64 /src",
			"podman build --manifest r.example/a:v1.2.3 --timestamp 1700000000 --identity-label=false " + arguments +
				" --platform linux/arm64 /src",
			"podman manifest push --all r.example/a:v1.2.3 docker://r.example/a:v1.2.3",
		}},
		"buildah": {Engine{Name: "buildah", Global: []string{"--root", "/r"}, Isolation: "chroot"}, prebuilt, []string{
			"buildah --root /r manifest rm r.example/a:v1.2.3",
			"buildah --root /r build --manifest r.example/a:v1.2.3 --timestamp 1700000000 --identity-label=false " +
				"--isolation chroot " + arguments +
				" --build-arg BASE_IMAGE=scratch --build-arg BINARY=prebuilt --platform linux/arm64 /bin-dir",
			"buildah --root /r manifest push --all r.example/a:v1.2.3 docker://r.example/a:v1.2.3",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range append(tc.engine.Build(tc.request),
				tc.engine.Push(tc.request, "docker://"+tc.request.Reference)...) {
				got = append(got, strings.Join(s.Args, " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("command lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		asked string
		works string
		want  string
		err   string
	}{
		"the first that works": {works: "podman buildah", want: "podman"},
		"no daemon":            {works: "buildah", want: "buildah"},
		"asked for":            {asked: "buildah", works: "docker podman buildah", want: "buildah"},
		"asked for, not there": {asked: "docker", works: "buildah", err: "docker works here: install one"},
		"none":                 {err: "apt-get install buildah"},
		"unknown":              {asked: "kaniko", works: "docker", err: "choose among docker, podman, buildah"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tc.asked, func(name string) bool { return strings.Contains(tc.works, name) })
			if got.Name != tc.want {
				t.Errorf("Choose() = %q, want %q", got.Name, tc.want)
			}
			checkError(t, err, tc.err)
		})
	}
}

func TestParse(t *testing.T) {
	if got, err := ParsePlatforms("linux/arm64, linux/amd64"); err != nil || joined(got) != "linux/arm64,linux/amd64" {
		t.Errorf("ParsePlatforms() = %v, %v", got, err)
	}
	for _, bad := range []string{"", "linux", "windows/amd64", "linux/amd64,"} {
		_, err := ParsePlatforms(bad)
		checkError(t, err, "choose among [linux/amd64 linux/arm64]")
	}
	if got, err := ParseStamp("v1.0.0 abc 17\n"); err != nil ||
		got != (Stamp{Version: "v1.0.0", Commit: "abc", Epoch: "17"}) {
		t.Errorf("ParseStamp() = %v, %v", got, err)
	}
	for _, bad := range []string{"", "v1 abc", "1.0.0 abc 17", "v1.0.0 abc yesterday"} {
		_, err := ParseStamp(bad)
		checkError(t, err, "want version, commit and time")
	}
}

func TestOpenDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(path, make([]byte, 1024), 0o600); err != nil { // an empty archive
		t.Fatal(err)
	}
	_, err := Open(path)
	checkError(t, err, "index.json is missing")
	_, err = Open(path + ".none")
	checkError(t, err, "no such file")
	_, err = Digest(path)
	checkError(t, err, "index.json")
	_, err = Digest(path + ".none")
	checkError(t, err, "no such file")
}

// checkError wants an error with that text, or none when the text is empty.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error = %v, want one with %q", err, want)
	}
}
