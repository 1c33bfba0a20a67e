package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Descriptor points to a blob (OCI image specification, descriptor.md).
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Config is how a container of the image is run (OCI image specification, config.md).
type Config struct {
	Platform
	Created string `json:"created"`
	Config  struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
	} `json:"config"`
}

// File is a file of an image.
type File struct {
	// Name is its path without the leading slash.
	Name string
	Mode fs.FileMode
	Size int64
	UID  int
	GID  int
	// Modified is in seconds since 1970.
	Modified int64
	// Blob is the digest of the layer that holds it.
	Blob string
}

// Variant is an image for one platform.
type Variant struct {
	// Digest is that of the manifest: what a registry calls the image.
	Digest string
	Config Config
	// Layers are the digests of its layers.
	Layers []string
	// Files are the regular files of all layers; directories are left out.
	Files []File
}

// Archive is an OCI archive with one image for some platforms (OCI image specification, image-layout.md).
type Archive struct {
	// Reference is the name that the archive carries.
	Reference string
	// Digest is that of the index of all platforms: what a registry calls the image once it is pushed.
	Digest   string
	Variants []Variant

	path string
}

const (
	// annotationReference carries the reference (OCI image specification, annotations.md).
	annotationReference = "org.opencontainers.image.ref.name"
	// smallBlob is the size up to which a blob may be an index, manifest or config.
	smallBlob = 1 << 20
)

// index and manifest are what is read of the documents of those names.
type (
	index struct {
		Manifests []Descriptor `json:"manifests"`
	}
	manifest struct {
		Config Descriptor   `json:"config"`
		Layers []Descriptor `json:"layers"`
	}
)

// Open reads an archive that holds an image for several platforms.
func Open(file string) (*Archive, error) {
	a := &Archive{path: file}
	if err := a.read(); err != nil {
		return nil, fmt.Errorf("OCI archive %s: %w", file, err)
	}
	return a, nil
}

func (a *Archive) read() error {
	documents, err := a.documents()
	if err != nil {
		return err
	}
	var top, list index
	if err := decodeDocument(documents, "index.json", &top); err != nil {
		return err
	}
	if len(top.Manifests) != 1 {
		return fmt.Errorf("it holds %d images, want one", len(top.Manifests))
	}
	a.Digest = top.Manifests[0].Digest
	a.Reference = top.Manifests[0].Annotations[annotationReference]
	if err := decodeDocument(documents, blobName(a.Digest), &list); err != nil {
		return err
	}
	for _, d := range list.Manifests {
		v, err := a.variant(documents, d)
		if err != nil {
			return fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		a.Variants = append(a.Variants, v)
	}
	return nil
}

func (a *Archive) variant(documents map[string][]byte, d Descriptor) (Variant, error) {
	v := Variant{Digest: d.Digest}
	var m manifest
	if err := decodeDocument(documents, blobName(d.Digest), &m); err != nil {
		return v, err
	}
	if err := decodeDocument(documents, blobName(m.Config.Digest), &v.Config); err != nil {
		return v, err
	}
	if d.Platform == nil || *d.Platform != v.Config.Platform {
		return v, fmt.Errorf("its index has platform %v, its config %v", d.Platform, v.Config.Platform)
	}
	for _, layer := range m.Layers {
		v.Layers = append(v.Layers, layer.Digest)
		err := a.walk(layer.Digest, func(h *tar.Header, _ io.Reader) (bool, error) {
			if h.Typeflag == tar.TypeReg {
				v.Files = append(v.Files, File{
					Name: path.Clean(strings.TrimPrefix(h.Name, "/")), Mode: h.FileInfo().Mode(), Size: h.Size,
					UID: h.Uid, GID: h.Gid,
					Modified: h.ModTime.Unix(), Blob: layer.Digest,
				})
			}
			return true, nil
		})
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// walk visits the entries of a layer until visit returns false.
func (a *Archive) walk(digest string, visit func(*tar.Header, io.Reader) (bool, error)) error {
	found := false
	err := a.entries(func(h *tar.Header, r io.Reader) error {
		if path.Clean(h.Name) != blobName(digest) {
			return nil
		}
		found = true
		unpacked, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		return visitAll(tar.NewReader(unpacked), visit)
	})
	if err == nil && !found {
		err = fmt.Errorf("the layer %s is missing", digest)
	}
	return err
}

func visitAll(layer *tar.Reader, visit func(*tar.Header, io.Reader) (bool, error)) error {
	for {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := visit(h, layer); err != nil || !more {
			return err
		}
	}
}

// documents reads all small files of the archive.
func (a *Archive) documents() (map[string][]byte, error) {
	all := map[string][]byte{}
	err := a.entries(func(h *tar.Header, r io.Reader) error {
		if h.Typeflag != tar.TypeReg || h.Size > smallBlob {
			return nil
		}
		var err error
		all[path.Clean(h.Name)], err = io.ReadAll(r)
		return err
	})
	return all, err
}

// entries visits every entry of the archive itself.
func (a *Archive) entries(visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return visitAll(tar.NewReader(f), func(h *tar.Header, r io.Reader) (bool, error) { return true, visit(h, r) })
}

func decodeDocument(documents map[string][]byte, name string, to any) error {
	data, ok := documents[name]
	if !ok {
		return fmt.Errorf("%s is missing", name)
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// blobName is where the blob of a digest, sha256:<hex>, lies in a layout.
func blobName(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
