package config

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	networkID    = "60473a6115e34466c9f8f083"
	credentials1 = `"clientID":"0123456789abcdef","clientSecret":"hunter2hunter2"`
)

// served is the network of the ID.
var served = network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}

// load writes the secret, parses the arguments and loads.
func load(t *testing.T, secret string, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.json")
	write(t, path, secret)
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(path, set, func(name string) string { return env[name] })
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

//proves:known-bugs/missing-flags
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

//proves:known-bugs/unused-options
func TestAllOptions(t *testing.T) {
	yaml := `
clientID: 0123456789abcdef
clientSecret: hunter2hunter2
location: ASH
base-url: https://pnap.example/
loadbalancer: kube-vip:///` + networkID + `
maxIPBlocks: 4
annotationIPLocation: example.com/site
controlPlaneEndpoint: true
apiServerPort: 6443
serviceNodeSelector: role=edge
ipAllocation: shared
ipBlockSize: /28
nodeAddress: block
manageMembership: true
providerIDFormat: bmc
collectOrphans: "true"
orphanGrace: 90m
apiRequestsPerSecond: 5
`
	config, err := load(t, yaml, nil, "--dry-run", "--metrics-on-private-addresses")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{config.Location, config.BaseURL, config.TokenURL, config.LoadBalancer, config.MaxIPBlocks,
		config.AnnotationIPLocation, config.ServiceNodeSelector.String(),
		config.ControlPlaneEndpoint, config.APIServerPort, config.Allocation, config.BlockSize,
		config.NodeAddress, config.ManageMembership, config.ProviderIDFormat,
		config.CollectOrphans, config.OrphanGrace, config.RequestsPerSecond, config.DryRun,
		config.MetricsPrivate}
	want := []any{"ASH", "https://pnap.example", "https://pnap.example/auth/realms/BMC/protocol/openid-connect/token",
		LoadBalancer{Announcer: contract.AnnouncerKubeVIP, Network: served}, 4, "example.com/site", "role=edge",
		true, 6443, contract.AllocationShared, "/28", NodeAddressBlock, true,
		contract.ProviderIDBMC,
		true, 90 * time.Minute, 5, true, true}
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
	if config.LoadBalancer.Enabled() || config.AnnotationIPLocation != "phoenixnap.com/ip-location" ||
		!config.ServiceNodeSelector.Empty() {
		t.Errorf("got %s", config)
	}
	got := []any{config.Allocation, config.BlockSize, config.NodeAddress,
		config.ManageMembership, config.ProviderIDFormat, config.DryRun,
		config.CollectOrphans, config.OrphanGrace, config.ControlPlaneEndpoint, config.APIServerPort,
		config.RequestsPerSecond, config.MetricsPrivate}
	want := []any{contract.AllocationDedicated, "/29", NodeAddressBlock, false,
		contract.ProviderIDPhoenixNAP, false, false, time.Hour, false, 0, 10, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The configuration that is logged at start contains every option, under its name in the secret.
func TestStringShowsEveryOption(t *testing.T) {
	config, err := load(t, `{`+credentials1+`}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[Option]string{baseURL: "baseURL", tokenURL: "tokenURL", loadBalancer: "publicNetwork",
		dryRun: "dryRun", metricsPrivate: "metricsOnPrivateAddresses"}
	for _, o := range Options() {
		name := shown[o]
		if name == "" {
			name = o.Field
		}
		if !strings.Contains(" "+config.String(), " "+name+"=") {
			t.Errorf("%s is missing in %s", name, config)
		}
	}
}

//proves:known-bugs/bad-selector
func TestInvalidOptions(t *testing.T) {
	const (
		ok = credentials1
		lb = `,"loadbalancer":"kube-vip://` + networkID + `"`
	)
	tests := map[string]struct {
		secret string
		env    map[string]string
		args   []string
		want   []string // one for each problem
	}{
		"nothing": {secret: `{}`, want: []string{"has no fields: write at least clientID and clientSecret",
			"clientID is missing: set PNAP_CLIENT_ID, secret field clientID",
			"clientSecret is missing"}},
		"the template": {secret: `{"clientID":"<client ID>","clientSecret":"<client secret>","location":"<location>","loadbalancer":"kube-vip://<network ID>"}`,
			want: []string{"secret field clientID is still the placeholder",
				"secret field clientSecret is still the placeholder", "secret field location",
				"secret field loadbalancer"}},
		"empty file": {secret: ``,
			want: []string{"has no fields", "clientID is missing", "clientSecret is missing"}},
		"unknown field": {secret: `{` + ok + `,"regoin":"x"}`,
			want: []string{`unknown field "regoin"; known fields are annotationIPLocation`}},
		"field of wrong kind": {secret: `{` + ok + `,"location":["ASH"]}`,
			want: []string{"field location: the value is not a string"}},
		"field twice": {secret: `{` + ok + `,"clientID":"b"}`,
			want: []string{"each field once"}},
		"no object":                            {secret: `hunter2hunter2`, want: []string{"not a JSON or YAML object"}},
		"trailing comma ok in YAML but broken": {secret: `{` + ok + `,,}`, want: []string{"not a JSON or YAML object"}},
		"everything at once": {
			secret: `{"clientID":"x","location":"ashburn","loadbalancer":"kubevip://` + networkID + `","foo":1}`,
			env:    map[string]string{"PNAP_MAX_IP_BLOCKS": "-1", "PNAP_SERVICE_NODE_SELECTOR": "a=("},
			args:   []string{"--base-url=ftp://x", "--annotation-ip-location=a b"},
			want: []string{`unknown field "foo"`, `secret field location: location "ashburn"`,
				`unknown scheme "kubevip": want kube-vip://<network-id> or agent://<network-id>`,
				`PNAP_MAX_IP_BLOCKS: "-1"`, "--annotation-ip-location", "PNAP_SERVICE_NODE_SELECTOR",
				"clientSecret is missing", "--base-url"},
		},
		"invalid allocation": {secret: `{` + ok + `,"ipAllocation":"some"}`,
			want: []string{`"some" is not an IP allocation`}},
		"/31": {secret: `{` + ok + `,"ipBlockSize":"/31"}`, want: []string{`not a block size`}},
		"an option that an IPBlock replaces": {secret: `{` + ok + lb + `,"nodeIPBlock":"` + networkID + `"}`,
			want: []string{`unknown field "nodeIPBlock"`}},
		"invalid boolean": {secret: `{` + ok + `,"collectOrphans":"perhaps"}`,
			want: []string{`secret field collectOrphans: "perhaps" is neither true nor false`}},
		"dry run in the secret": {secret: `{` + ok + `,"dryRun":true}`, want: []string{`unknown field "dryRun"`}},
		"invalid node address": {secret: `{` + ok + `,"nodeAddress":"dhcp"}`,
			want: []string{`"dhcp" is not a node address`}},
		"invalid provider ID format": {secret: `{` + ok + `,"providerIDFormat":"capi"}`,
			want: []string{`secret field providerIDFormat: "capi" is not a provider ID format`}},
		"short grace": {secret: `{` + ok + `}`, args: []string{"--orphan-grace=1s"},
			want: []string{`--orphan-grace: "1s" is not a duration of at least 10s`}},
		"grace without unit": {secret: `{` + ok + `,"orphanGrace":60}`, want: []string{`"60" is not a duration`}},
		"no requests": {secret: `{` + ok + `,"apiRequestsPerSecond":0}`,
			want: []string{`"0" is not a number from 1 to 100`}},
		"options that need a network": {
			secret: `{` + ok + `}`,
			args:   []string{"--manage-membership", "--control-plane-endpoint"},
			want: []string{"--control-plane-endpoint needs a public network: also set --load-balancer, " +
				"PNAP_LOAD_BALANCER, secret field loadbalancer, or remove it", "--manage-membership needs"},
		},
		"a wrong network is one problem": {secret: `{` + ok + `,"loadbalancer":"kube-vip://x"}`,
			args: []string{"--manage-membership"}, want: []string{`"x" is not the ID`}},
		"port without endpoint": {secret: `{` + ok + lb + `}`, args: []string{"--api-server-port=6443"},
			want: []string{"--api-server-port only affects the control-plane endpoint"}},
		"not JSON": {secret: "\x00\x01", want: []string{`write {"clientID": "…", "clientSecret": "…"}`}},
		"encoded twice": {secret: base64.StdEncoding.EncodeToString([]byte(`{` + ok + `}`)),
			want: []string{"the content is encoded as base64"}},
		"nothing to share": {secret: `{` + ok + `,"ipAllocation":"shared","ipBlockSize":"/30"}`,
			want: []string{"secret field ipBlockSize: a block of size /30 has one address"}},
		"invalid port": {secret: `{` + ok + `,"apiServerPort":65536}`, want: []string{`"65536" is not a port`}},
		"password in URL": {secret: `{` + ok + `,"base-url":"https://u:hunter2@host"}`,
			want: []string{"a URL with a user name is not allowed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := load(t, test.secret, test.env, test.args...)
			if err == nil {
				t.Fatalf("no error, got %s", config)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error contains a secret: %v", err)
			}
			if sentences := strings.Count(err.Error(), "\n") + 1; sentences != len(test.want) {
				t.Errorf("%d problems, want %d: %v", sentences, len(test.want), err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}

// What v1 had in the environment and in its secret does not stop the start.
func TestThePortOfV1IsAWarning(t *testing.T) {
	for where, set := range map[string]struct{ field, env string }{
		"PNAP_API_SERVER_PORT": {env: "6443"}, "secret field apiServerPort": {field: `,"apiServerPort":"6443"`},
	} {
		config, err := load(t, `{`+credentials1+set.field+`}`, map[string]string{"PNAP_API_SERVER_PORT": set.env})
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if len(config.Warnings) != 1 || !strings.HasPrefix(config.Warnings[0],
			where+" only affects the control-plane") {
			t.Errorf("%s: warnings %q", where, config.Warnings)
		}
	}
	config, err := load(t, `{`+credentials1+`}`, map[string]string{"PNAP_API_SERVER_PORT": "0"})
	if err != nil || len(config.Warnings) != 0 {
		t.Errorf("port 0: %v, warnings %q", err, config.Warnings)
	}
}

// A file that cannot be read says what to do about it.
func TestMissingFile(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		"": "no cloud config given: set --cloud-config",
		"/nowhere/x": "read cloud config: open /nowhere/x: no such file or directory; set --cloud-config to the path " +
			"of the secret",
		dir: "set --cloud-config to the file in this directory",
	} {
		if _, err := Load(path, nil, os.Getenv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q): got %v, want %q", path, err, want)
		}
	}
	refused := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}
	if got := remedy("x", refused); !strings.Contains(got, "let the user of this process read the file") {
		t.Errorf("a file of another user: %q", got)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	config, err := load(t, `{`+credentials1+`}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{config.String(), fmt.Sprintf("%v %+v %#v %s", config, config, config, config)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%s contains a secret", text)
		}
	}
}

//proves:known-bugs/changed-credentials
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
	write(t, path, `{"clientID":"new","clientSecret":"OTHER"}`) // the same size: only the time differs
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
		t.Error("no error for a missing file")
	}
}

// The kubelet replaces a mounted Secret by pointing the link "..data" at another directory, whose file may have the
// size and the time of the previous one.
//
//proves:known-bugs/changed-credentials
func TestCredentialsFollowTheLinksOfTheKubelet(t *testing.T) {
	dir := t.TempDir()
	stamp := time.Now().Add(-time.Hour)
	swap := func(version, secret string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, version, "cloud.json")
		write(t, file, `{"clientID":"0123456789abcdef","clientSecret":"`+secret+`"}`)
		link := filepath.Join(dir, "..data_tmp")
		for _, err := range []error{os.Chtimes(file, stamp, stamp), os.Symlink(version, link),
			os.Rename(link, filepath.Join(dir, "..data"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	swap("..2026_01", "first")
	path := filepath.Join(dir, "cloud.json")
	if err := os.Symlink(filepath.Join("..data", "cloud.json"), path); err != nil {
		t.Fatal(err)
	}
	config, err := Load(path, nil, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"..2026_02": "other", "..2026_03": "third"} {
		if _, _, err := config.Credentials(); err != nil {
			t.Fatal(err)
		}
		swap(version, want)
		if _, secret, err := config.Credentials(); err != nil || secret != want {
			t.Errorf("after the swap: %q, %v; want %q", secret, err, want)
		}
	}
}

//proves:known-bugs/misspelt-scheme
//proves:known-bugs/three-slashes
func TestParseLoadBalancer(t *testing.T) {
	tests := map[string]struct {
		want LoadBalancer
		err  string
	}{
		"kube-vip://" + networkID:             {want: LoadBalancer{contract.AnnouncerKubeVIP, served}},
		"kube-vip:///" + networkID:            {want: LoadBalancer{contract.AnnouncerKubeVIP, served}},
		"agent://" + networkID:                {want: LoadBalancer{contract.AnnouncerAgent, served}},
		"agent:////" + networkID:              {err: "is not the ID of a public network"},
		"kubevip://" + networkID:              {err: `unknown scheme "kubevip"`},
		"KUBE-VIP://" + networkID:             {err: "unknown scheme"},
		"kube-vip://":                         {err: `"" is not the ID of a public network`},
		"kube-vip://60473A6115E34466C9F8F083": {err: "24 hexadecimal digits"},
		"kube-vip://" + networkID + "/":       {err: "is not the ID of a public network"},
		networkID:                             {err: "is not a URL"},
		"":                                    {err: "is not a URL"},
	}
	for raw, test := range tests {
		got, err := parseLoadBalancer(raw)
		if test.err == "" {
			if err != nil || got != test.want {
				t.Errorf("parseLoadBalancer(%q) = %+v, %v; want %+v", raw, got, err, test.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.err) ||
			!strings.Contains(err.Error(), "want kube-vip://<network-id> or agent://<network-id>") {
			t.Errorf("parseLoadBalancer(%q): got %v, want %q", raw, err, test.err)
		}
	}
}

func FuzzParseLoadBalancer(f *testing.F) {
	for _, seed := range []string{"kube-vip://" + networkID, "agent:///" + networkID, "kube-vip://x", "://", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseLoadBalancer(raw)
		if err != nil {
			if got != (LoadBalancer{}) {
				t.Fatalf("an error and %+v", got)
			}
			return
		}
		reparsed, err := parseLoadBalancer(got.Announcer + "://" + got.Network.ID)
		if err != nil || reparsed != got {
			t.Fatalf("round trip of %q: %+v, %v", raw, reparsed, err)
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
