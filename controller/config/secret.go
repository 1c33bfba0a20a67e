package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

var linePattern = regexp.MustCompile(`line \d+`)

// readSecret reads the fields of the config secret: a JSON or YAML object with only known fields. With an error, it
// returns the fields that it could read, or nil.
func readSecret(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read cloud config: %w; %s", err, remedy(path, err))
	}
	fields, err := parseSecret(raw)
	if err != nil {
		err = fmt.Errorf("cloud config %s: %w", path, err)
	}
	return fields, err
}

// remedy returns what to do when the file cannot be read.
func remedy(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "let the user of this process read the file"
	case statErr == nil && info.IsDir():
		return "set --cloud-config to the file in this directory, which the key of the Secret names"
	default:
		return setCloudConfig
	}
}

// parseSecret never includes a value in its errors: any value may be the client secret in the wrong place.
func parseSecret(raw []byte) (map[string]string, error) {
	var values map[string]json.RawMessage
	if err := yaml.UnmarshalStrict(raw, &values); err != nil {
		return nil, errors.New("not a JSON or YAML object with each field once" + lineOf(err) + ": " + cure(raw))
	}
	known := fieldNames()
	fields := map[string]string{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, err := scalar(values[name])
		switch {
		case !slices.Contains(known, name):
			problems = append(problems, fmt.Errorf("unknown field %q; known fields are %s", name,
				strings.Join(known, ", ")))
		case err != nil:
			problems = append(problems, fmt.Errorf("field %s: %w", name, err))
		case slices.Contains([]string{clientID.Field, clientSecret.Field}, name) && !isText(values[name]):
			problems = append(problems, fmt.Errorf("field %s: the value is not text: put it in quotation marks", name))
		default:
			fields[name] = text
		}
	}
	return fields, errors.Join(problems...)
}

// cure returns how to correct a file that is no object.
func cure(raw []byte) string {
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err == nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return "the content is encoded as base64; encode the fields data of a Secret once, or use stringData"
	}
	return `write {"clientID": "…", "clientSecret": "…"}, as in deploy/template/secret.yaml`
}

// fieldNames returns the sorted names of the secret's fields.
func fieldNames() []string {
	var names []string
	for _, o := range Options() {
		if o.Field != "" {
			names = append(names, o.Field)
		}
	}
	slices.Sort(names)
	return names
}

func lineOf(err error) string {
	if line := linePattern.FindString(err.Error()); line != "" {
		return ", see " + line
	}
	return ""
}

// scalar accepts a string, a number or a boolean, as YAML users write 5 where JSON users write "5".
func scalar(raw json.RawMessage) (string, error) {
	var text string
	var number json.Number
	var flag bool
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text, nil
	case json.Unmarshal(raw, &number) == nil:
		return number.String(), nil
	case json.Unmarshal(raw, &flag) == nil:
		return fmt.Sprint(flag), nil
	}
	return "", errors.New("the value is not a string, a number or a boolean")
}

// isText reports whether a value is a string or missing. Of a number only the value would be left, not its digits.
func isText(raw json.RawMessage) bool {
	return bytes.HasPrefix(raw, []byte(`"`)) || string(raw) == "null"
}

// credentials follows the secret file: Kubernetes replaces it when the Secret changes.
type credentials struct {
	path   string
	getenv func(string) string

	mu         sync.Mutex
	read       os.FileInfo // of the file that id and secret were read from
	id, secret string
}

// get returns the client ID and secret; it reads the file only when it was replaced, or its time or size has changed.
func (c *credentials) get() (id, secret string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.path)
	if err != nil {
		return "", "", fmt.Errorf("read cloud config: %w", err)
	}
	unchanged := c.read != nil && os.SameFile(info, c.read) &&
		info.ModTime().Equal(c.read.ModTime()) && info.Size() == c.read.Size()
	if unchanged {
		return c.id, c.secret, nil
	}
	fields, err := readSecret(c.path)
	if err != nil {
		return "", "", err
	}
	p := &parser{getenv: c.getenv, secret: fields}
	id = p.required(clientID)
	secret = p.required(clientSecret)
	if len(p.problems) > 0 {
		return "", "", errors.Join(p.problems...)
	}
	c.id = id
	c.secret = secret
	c.read = info
	return id, secret, nil
}
