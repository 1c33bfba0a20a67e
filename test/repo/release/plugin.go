package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/licenses"
)

// The plugin as krew and its archives call it.
const (
	pluginProgram  = "kubectl-pnap"
	PluginManifest = "pnap.yaml"
)

// krewPlugin is a manifest of krew (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// addPlugin packs the plugin for each platform with the licenses, and writes the manifest by which krew installs it.
func (r Release) addPlugin(parts []licenses.Part) error {
	built, err := filepath.Glob(filepath.Join(r.Programs, pluginProgram+"-*"))
	if err != nil {
		return err
	}
	manifest := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": "pnap"}, Spec: krewSpec{Version: r.Stamp.Version, Homepage: site,
			ShortDescription: "Show problems and addresses of phoenixNAP clusters",
			Description: "Shows what is wrong and what the phoenixNAP cloud provider does in a cluster: problems, " +
				"Nodes with their servers, Services with their addresses, and IP blocks.\n"}}
	for _, program := range built {
		platform, err := r.packPlugin(program, parts)
		if err != nil {
			return fmt.Errorf("archive of %s: %w", program, err)
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, platform)
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.Dir, plugin, PluginManifest), 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// packPlugin writes the archive of a built plugin, kubectl-pnap-<os>-<arch>.
func (r Release) packPlugin(program string, parts []licenses.Part) (krewPlatform, error) {
	var platform krewPlatform
	words := strings.Split(filepath.Base(program), "-")
	system := words[len(words)-2]
	platform.Selector.MatchLabels = map[string]string{"os": system, "arch": words[len(words)-1]}
	platform.Bin = pluginProgram
	if system == "windows" {
		platform.Bin += ".exe"
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return platform, err
	}
	own, err := os.ReadFile(filepath.Join(r.Root, "LICENSE"))
	if err != nil {
		return platform, err
	}
	var others strings.Builder
	if err := licenses.Write(&others, parts); err != nil {
		return platform, err
	}
	name := filepath.Base(program) + ".tar.gz"
	path := filepath.Join(r.Dir, plugin, name)
	if err := r.packFiles(path, packed{platform.Bin, 0o755, content}, packed{"LICENSE", 0o644, own},
		packed{thirdParty, 0o644, []byte(others.String())}); err != nil {
		return platform, err
	}
	archive, err := os.ReadFile(path)
	platform.URI = Downloads + r.Stamp.Version + "/" + name
	platform.SHA256 = fmt.Sprintf("%x", sha256.Sum256(archive))
	return platform, err
}

// packed is a file of an archive.
type packed struct {
	name    string
	mode    int64
	content []byte
}

// packFiles writes a compressed archive. The time of all files is that of the sources.
func (r Release) packFiles(path string, files ...packed) error {
	made, err := r.made()
	if err != nil {
		return err
	}
	return writeFile(path, 0o644, func(w io.Writer) error {
		compressed := gzip.NewWriter(w)
		archive := tar.NewWriter(compressed)
		for _, f := range files {
			if err := packFile(archive, f, made); err != nil {
				return err
			}
		}
		if err := archive.Close(); err != nil {
			return err
		}
		return compressed.Close()
	})
}

func packFile(archive *tar.Writer, f packed, made time.Time) error {
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode,
		Size: int64(len(f.content)), ModTime: made, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := archive.Write(f.content)
	return err
}
