package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	network      = "60473a6115e34466c9f8f083"
	credentials1 = `"clientID":"0123456789abcdef","clientSecret":"hunter2hunter2"`
)

// load writes the secret, parses the arguments and loads.
func load(t *testing.T, secret string, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.json")
	write(t, path, secret)
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(path, flags, func(name string) string { return env[name] })
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPrecedence(t *testing.T) {
	const field = `{` + credentials1 + `,"location":"PHX"}`
	env := map[string]string{"PNAP_LOCATION": "SEA"}
	tests := map[string]struct {
		secret string
		env    map[string]string
		args   []string
		want   string
	}{
		"default":          {secret: `{` + credentials1 + `}`, want: ""},
		"secret":           {secret: field, want: "PHX"},
		"env over secret":  {secret: field, env: env, want: "SEA"},
		"flag over env":    {secret: field, env: env, args: []string{"--location=ASH"}, want: "ASH"},
		"flag set to none": {secret: field, env: env, args: []string{"--location="}, want: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := load(t, test.secret, test.env, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if config.Location != test.want {
				t.Errorf("location %q, want %q", config.Location, test.want)
			}
		})
	}
}

func TestAllOptions(t *testing.T) {
	yaml := `
clientID: 0123456789abcdef
clientSecret: hunter2hunter2
location: ASH
base-url: https://pnap.example/
loadbalancer: kube-vip:///` + network + `
maxIPBlocks: 4
annotationIPLocation: example.com/site
apiServerPort: 0
serviceNodeSelector: role=edge
ipAllocation: dedicated
ipBlockSize: /29
`
	config, err := load(t, yaml, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{config.Location, config.BaseURL, config.TokenURL, config.LoadBalancer, config.MaxIPBlocks, config.AnnotationIPLocation, config.ServiceNodeSelector.String()}
	want := []any{"ASH", "https://pnap.example", "https://pnap.example/auth/realms/BMC/protocol/openid-connect/token",
		LoadBalancer{Announcer: contract.AnnouncerKubeVIP, NetworkID: network}, 4, "example.com/site", "role=edge"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	config, err := load(t, `{`+credentials1+`}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if config.BaseURL != pnap.DefaultBaseURL || config.TokenURL != pnap.DefaultTokenURL {
		t.Errorf("URLs %s and %s", config.BaseURL, config.TokenURL)
	}
	if config.LoadBalancer.Enabled() || config.AnnotationIPLocation != "phoenixnap.com/ip-location" || !config.ServiceNodeSelector.Empty() {
		t.Errorf("got %s", config)
	}
}

func TestRefusals(t *testing.T) {
	const ok = credentials1
	tests := map[string]struct {
		secret string
		env    map[string]string
		args   []string
		want   []string // one for each sentence
	}{
		"nothing":                              {secret: `{}`, want: []string{"clientID is missing: set PNAP_CLIENT_ID, secret field clientID", "clientSecret is missing"}},
		"empty file":                           {secret: ``, want: []string{"clientID is missing", "clientSecret is missing"}},
		"unknown field":                        {secret: `{` + ok + `,"regoin":"x"}`, want: []string{`unknown field "regoin"; known are annotationIPLocation`}},
		"field of wrong kind":                  {secret: `{` + ok + `,"location":["ASH"]}`, want: []string{"field location: the value is neither"}},
		"field twice":                          {secret: `{` + ok + `,"clientID":"b"}`, want: []string{"each field once"}},
		"no object":                            {secret: `hunter2hunter2`, want: []string{"no JSON or YAML object"}},
		"trailing comma ok in YAML but broken": {secret: `{` + ok + `,,}`, want: []string{"no JSON or YAML object"}},
		"everything at once": {
			secret: `{"clientID":"x","location":"ashburn","loadbalancer":"kubevip://` + network + `","foo":1}`,
			env:    map[string]string{"PNAP_MAX_IP_BLOCKS": "-1", "PNAP_SERVICE_NODE_SELECTOR": "a=("},
			args:   []string{"--base-url=ftp://x", "--annotation-ip-location=a b"},
			want: []string{`unknown field "foo"`, `secret field location: location "ashburn"`, `unknown scheme "kubevip": want kube-vip://<network-id> or agent://<network-id>`,
				`PNAP_MAX_IP_BLOCKS: "-1"`, "--annotation-ip-location", "PNAP_SERVICE_NODE_SELECTOR", "clientSecret is missing", "--base-url"},
		},
		"agent announces": {secret: `{` + ok + `,"loadbalancer":"agent://` + network + `"}`, want: []string{`secret field loadbalancer: "agent://` + network + `" is not supported yet; set kube-vip://<network-id>`}},
		"shared":          {secret: `{` + ok + `,"ipAllocation":"shared"}`, want: []string{`ipAllocation "shared" is not supported yet; set "dedicated"`}},
		"odd allocation":  {secret: `{` + ok + `,"ipAllocation":"some"}`, want: []string{`"some" is no IP allocation`}},
		"/28":             {secret: `{` + ok + `}`, env: map[string]string{"PNAP_IP_BLOCK_SIZE": "/28"}, want: []string{`ipBlockSize "/28" is not supported yet; set "/29"`}},
		"/31":             {secret: `{` + ok + `,"ipBlockSize":"/31"}`, want: []string{`no block size`}},
		"dry run":         {secret: `{` + ok + `}`, args: []string{"--dry-run"}, want: []string{"--dry-run is not supported yet"}},
		"node block":      {secret: `{` + ok + `,"nodeIPBlock":"` + network + `"}`, want: []string{"nodeIPBlock is not supported yet"}},
		"odd node block":  {secret: `{` + ok + `,"nodeIPBlock":"x"}`, want: []string{`"x" is no ID of an IP block`}},
		"API server port": {secret: `{` + ok + `,"apiServerPort":6443}`, want: []string{"apiServerPort is not supported yet"}},
		"odd port":        {secret: `{` + ok + `,"apiServerPort":65536}`, want: []string{`"65536" is no port`}},
		"password in URL": {secret: `{` + ok + `,"base-url":"https://u:hunter2@host"}`, want: []string{"a URL with a user name is not allowed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := load(t, test.secret, test.env, test.args...)
			if err == nil {
				t.Fatalf("no error, got %s", config)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret stands in: %v", err)
			}
			if sentences := strings.Count(err.Error(), "\n") + 1; sentences != len(test.want) {
				t.Errorf("%d sentences, want %d: %v", sentences, len(test.want), err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	for path, want := range map[string]string{"": "no cloud config given: set --cloud-config", "/nowhere/x": "read cloud config"} {
		if _, err := Load(path, nil, os.Getenv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q): got %v, want %q", path, err, want)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	config, err := load(t, `{`+credentials1+`}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{config.String(), fmt.Sprintf("%v %+v %#v %s", config, config, config, config)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "0123456789abcdef") {
			t.Errorf("a secret stands in %s", text)
		}
	}
}

func TestCredentialsFollowTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.json")
	write(t, path, `{`+credentials1+`}`)
	env := map[string]string{}
	config, err := Load(path, nil, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	check := func(wantID, wantSecret string) {
		t.Helper()
		id, secret, err := config.Credentials()
		if err != nil || id != wantID || secret != wantSecret {
			t.Errorf("got %s, %s, %v; want %s, %s", id, secret, err, wantID, wantSecret)
		}
	}
	check("0123456789abcdef", "hunter2hunter2")
	write(t, path, `{"clientID":"new","clientSecret":"other"}`)
	check("new", "other")
	write(t, path, `{"clientID":"new","clientSecret":"OTHER"}`) // the same size, so the time must tell
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	check("new", "OTHER")
	write(t, path, `{"clientID":"new"}`)
	if _, _, err := config.Credentials(); err == nil {
		t.Error("no error for a secret without clientSecret")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.Credentials(); err == nil {
		t.Error("no error for a file that is gone")
	}
}

func TestParseLoadBalancer(t *testing.T) {
	tests := map[string]struct {
		want LoadBalancer
		err  string
	}{
		"kube-vip://" + network:               {want: LoadBalancer{contract.AnnouncerKubeVIP, network}},
		"kube-vip:///" + network:              {want: LoadBalancer{contract.AnnouncerKubeVIP, network}},
		"agent://" + network:                  {want: LoadBalancer{contract.AnnouncerAgent, network}},
		"agent:////" + network:                {err: "no ID of a public network"},
		"kubevip://" + network:                {err: `unknown scheme "kubevip"`},
		"KUBE-VIP://" + network:               {err: "unknown scheme"},
		"kube-vip://":                         {err: `"" is no ID of a public network`},
		"kube-vip://60473A6115E34466C9F8F083": {err: "24 hexadecimal digits"},
		"kube-vip://" + network + "/":         {err: "no ID of a public network"},
		network:                               {err: "is no URL"},
		"":                                    {err: "is no URL"},
	}
	for raw, test := range tests {
		got, err := ParseLoadBalancer(raw)
		if test.err == "" {
			if err != nil || got != test.want {
				t.Errorf("ParseLoadBalancer(%q) = %+v, %v; want %+v", raw, got, err, test.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "want kube-vip://<network-id> or agent://<network-id>") {
			t.Errorf("ParseLoadBalancer(%q): got %v, want %q", raw, err, test.err)
		}
	}
}

func FuzzParseLoadBalancer(f *testing.F) {
	for _, seed := range []string{"kube-vip://" + network, "agent:///" + network, "kube-vip://x", "://", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := ParseLoadBalancer(raw)
		if err != nil {
			if got != (LoadBalancer{}) {
				t.Fatalf("an error and %+v", got)
			}
			return
		}
		again, err := ParseLoadBalancer(got.Announcer + "://" + got.NetworkID)
		if err != nil || again != got {
			t.Fatalf("round trip of %q: %+v, %v", raw, again, err)
		}
	})
}

func FuzzParseSecret(f *testing.F) {
	f.Add(`{` + credentials1 + `}`)
	f.Add("clientID: [1, 2]\nfoo: bar")
	f.Fuzz(func(t *testing.T, raw string) {
		fields, err := parseSecret([]byte(raw))
		for name := range fields {
			found := false
			for _, known := range fieldNames() {
				found = found || known == name
			}
			if !found {
				t.Fatalf("field %q, error %v", name, err)
			}
		}
	})
}
