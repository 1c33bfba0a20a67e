package config

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/spf13/pflag"
)

const pastedSecret = "hunter2hunter2"

// valid has a value for each option, by its name in the secret, or its flag.
var valid = map[string]string{
	"clientID": "0123456789abcdef", "clientSecret": pastedSecret, "location": "ASH", "base-url": "https://pnap.example",
	"token-url": "https://auth.example/token", "loadbalancer": "kube-vip://" + networkID, "ipAllocation": "shared",
	"ipBlockSize": "/28", "maxIPBlocks": "12",
	"annotationIPLocation": "example.com/site", "serviceNodeSelector": "role=edge", "manageMembership": "true",
	"nodeAddress": "block", "collectOrphans": "true", "orphanGrace": "90m",
	"controlPlaneEndpoint": "true", "apiServerPort": "6443", "apiRequestsPerSecond": "15", "dry-run": "true",
	"maxRetainedIPBlocks": "12", "maxRetainedIPBlocksPerNamespace": "11", "metrics-on-private-addresses": "true",
	"providerIDFormat": "bmc",
}

// blemish is what a value has after it was copied from a page, a terminal, a document or another program.
type blemish struct {
	of func(string) string
	// trimmed: the value is taken as if it had been copied well. All others may be refused.
	trimmed bool
}

// inside puts text into the middle of a value.
func inside(text string) func(string) string {
	return func(value string) string { return value[:len(value)/2] + text + value[len(value)/2:] }
}

func around(before, after string) func(string) string {
	return func(value string) string { return before + value + after }
}

func blemishes() map[string]blemish {
	all := map[string]blemish{
		"in quotes": {of: around(`"`, `"`)}, "in single quotes": {of: around("'", "'")},
		"in typographic quotes": {of: around("“", "”")}, "in backquotes": {of: around("`", "`")},
		"another letter": {of: inside("é")}, "a broken letter": {of: inside("\xff")},
		"a space at the end but one": {of: func(value string) string { return value[:len(value)-1] + " " + value[len(value)-1:] }},
	}
	for name, text := range map[string]string{
		"space": " ", "tab": "\t", "line end": "\n", "line end of Windows": "\r\n", "carriage return": "\r",
		"no-break space": "\u00a0", "zero-width space": "\u200b", "byte order mark": "\ufeff", "word joiner": "\u2060",
		"direction mark": "\u200e", "soft hyphen": "\u00ad", "line separator": "\u2028", "NUL": "\x00", "escape": "\x1b",
	} {
		all[name+" before"] = blemish{of: around(text, ""), trimmed: true}
		all[name+" after"] = blemish{of: around("", text), trimmed: true}
		all[name+" inside"] = blemish{of: inside(text)}
	}
	return all
}

// setting is where options are set.
type setting struct {
	secret, env map[string]string
	args        []string
}

// load writes the secret into a file, and reads all.
func (s setting) load(t *testing.T, file string) (*Config, error) {
	t.Helper()
	raw, err := json.Marshal(s.secret)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(raw))
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set)
	if err := set.Parse(s.args); err != nil {
		t.Fatal(err)
	}
	return Load(file, set, func(name string) string { return s.env[name] })
}

// settings set one option in each way, and what every configuration needs, or this option does.
func settings(o Option, value string) map[string]setting {
	base := func() map[string]string {
		fields := map[string]string{}
		for _, name := range []string{"clientID", "clientSecret", "loadbalancer", "controlPlaneEndpoint"} {
			if name != o.Field {
				fields[name] = valid[name]
			}
		}
		return fields
	}
	ways := map[string]setting{}
	if o.Field != "" {
		fields := base()
		fields[o.Field] = value
		ways["secret field "+o.Field] = setting{secret: fields}
	}
	if o.Env != "" {
		ways[o.Env] = setting{secret: base(), env: map[string]string{o.Env: value}}
	}
	if o.Flag != "" && !o.toggle { // the parser of flags refuses a toggle of any other form
		ways["--"+o.Flag] = setting{secret: base(), args: []string{"--" + o.Flag + "=" + value}}
	}
	return ways
}

// outcome is what the controller works with.
func outcome(t *testing.T, c *Config) string {
	t.Helper()
	id, secret, err := c.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	return id + " " + secret + " " + c.String()
}

// TestPastedValues: whatever copying has added to a value, the controller works as with the value itself, or says in
// words where what stands. It never tries a value that cannot be right, for which the API would get the blame.
func TestPastedValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.json")
	for _, o := range Options() {
		value, ok := valid[o.Field]
		if o.Field == "" {
			value, ok = valid[o.Flag]
		}
		if !ok {
			t.Errorf("no valid value for %s", o.name())
		}
		for way, clean := range settings(o, value) {
			config, err := clean.load(t, file)
			if err != nil {
				t.Errorf("%s: %v", way, err)
				continue
			}
			want := outcome(t, config)
			for name, b := range blemishes() {
				got, err := settings(o, b.of(value))[way].load(t, file)
				switch {
				case err == nil:
					if got := outcome(t, got); got != want {
						t.Errorf("%s, %s: the configuration is %q, want %q", way, name, got, want)
					}
				case b.trimmed:
					t.Errorf("%s, %s: %v", way, name, err)
				case !strings.Contains(err.Error(), way), strings.Contains(err.Error(), pastedSecret[:5]),
					strings.Contains(err.Error(), pastedSecret[9:]):
					t.Errorf("%s, %s: the error is %q", way, name, err)
				}
			}
		}
	}
}

// TestFlawsAreNamed: the sentences.
func TestFlawsAreNamed(t *testing.T) {
	for value, want := range map[string]string{
		"hunter2\u200bhunter2": "PNAP_CLIENT_SECRET contains the character U+200B, which it cannot have: copy it again",
		"hunter2\nhunter2":     "PNAP_CLIENT_SECRET contains the character U+000A, which it cannot have: copy it again",
		"hunter2 hunter2":      "PNAP_CLIENT_SECRET contains the character U+0020, which it cannot have: copy it again",
		`"hunter2hunter2"`:     "PNAP_CLIENT_SECRET is enclosed in quotation marks: remove them",
		"“hunter2hunter2”":     "PNAP_CLIENT_SECRET is enclosed in quotation marks: remove them",
		"«hunter2hunter2»":     "PNAP_CLIENT_SECRET is enclosed in quotation marks: remove them",
	} {
		_, err := load(t, `{"clientID":"0123456789abcdef"}`, map[string]string{"PNAP_CLIENT_SECRET": value})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", value, err, want)
		}
	}
}

// TestCredentialsAreText: digits without quotation marks are a number, of which JSON and YAML keep the value and not
// the digits, and some words are none.
func TestCredentialsAreText(t *testing.T) {
	for _, value := range []string{"0123456789", "12345678901234567890123", "1e5", "true", "0x1F", "1_000"} {
		for _, field := range []string{"clientID", "clientSecret"} {
			fields := maps.Clone(valid)
			for _, other := range []string{"dry-run", field} {
				delete(fields, other)
			}
			raw, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			_, err = load(t, strings.TrimSuffix(string(raw), "}")+", "+field+": "+value+"}", nil)
			if err == nil || !strings.Contains(err.Error(), "field "+field+
				": the value is not text: put it in quotation marks") {
				t.Errorf("%s: %s: %v", field, value, err)
			}
		}
	}
}

// TestFileOfAnotherSystem: an editor of Windows writes a byte order mark, line ends of two characters, or UTF-16.
func TestFileOfAnotherSystem(t *testing.T) {
	text := "{\r\n  " + credentials1 + "\r\n}\r\n"
	wide := func(order func(uint16) []byte) string {
		var raw []byte
		for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
			raw = append(raw, order(unit)...)
		}
		return string(raw)
	}
	for name, content := range map[string]string{
		"byte order mark": "\ufeff" + text,
		"UTF-16":          wide(func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }),
		"UTF-16, big end": wide(func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} }),
	} {
		config, err := load(t, content, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if id, secret, err := config.Credentials(); err != nil || id != "0123456789abcdef" || secret != pastedSecret {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
}

// FuzzPasted: no value is used that begins or ends with what copying adds, and no credential that could not be sent.
func FuzzPasted(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(blemishes())) {
		f.Add(blemishes()[name].of(pastedSecret))
	}
	f.Fuzz(func(t *testing.T, pasted string) {
		path := filepath.Join(t.TempDir(), "cloud.json")
		write(t, path, `{"clientID":"0123456789abcdef"}`)
		config, err := Load(path, &pflag.FlagSet{}, func(name string) string {
			return map[string]string{"PNAP_CLIENT_SECRET": pasted}[name]
		})
		if err != nil {
			return
		}
		_, secret, err := config.Credentials()
		if err != nil || secret == "" || !strings.Contains(pasted, secret) {
			t.Fatalf("%q: %q, %v", pasted, secret, err)
		}
		for _, r := range secret {
			if r <= ' ' || r > '~' {
				t.Fatalf("%q: the secret contains %U", pasted, r)
			}
		}
	})
}
