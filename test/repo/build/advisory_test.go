package build

import (
	"crypto/tls"
	"debug/buildinfo"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/idna"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// advisories of the Go vulnerability database (https://pkg.go.dev/vuln/<id>) that once reached a program of ours, and
// the first release of the module without the fault.
var advisories = []struct{ id, module, fixed string }{
	{"GO-2026-4918", "golang.org/x/net", "0.53.0"},
	// The database names 0.55.0, whose check does nothing with the Unicode tables of Go 1.26 (golang/vulndb issue
	// 6235).
	{"GO-2026-5026", "golang.org/x/net", "0.57.0"},
}

// checkAdvisories reads from a built program which modules are in it.
func checkAdvisories(t *testing.T, program string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		for _, advisory := range advisories {
			if module.Path != advisory.module {
				continue
			}
			if have := version.MustParseSemantic(module.Version); have.LessThan(version.MustParseSemantic(
				advisory.fixed)) {
				t.Errorf("%s is in it, which has %s: raise it to %s or newer", module.Path+" "+module.Version,
					advisory.id, advisory.fixed)
			}
		}
	}
}

// TestToolchainIsNewerThanAdvisories: GO-2026-6617 is in the standard library of Go 1.26.8. go.mod names a newer
// toolchain, which the go command takes unless GOTOOLCHAIN=local forbids it, as the images of Go do: what builds in
// them sets auto (TestGoIsTheSameEverywhere in test/repo/automation).
func TestToolchainIsNewerThanAdvisories(t *testing.T) {
	root, err := tools.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindSubmatch(goMod)
	if toolchain == nil {
		t.Fatal("go.mod names no toolchain")
	}
	if have := version.MustParseGeneric(string(toolchain[1])); !have.GreaterThan(version.MustParseGeneric("1.26.8")) {
		t.Errorf("go.mod names the toolchain %s, whose standard library has GO-2026-6617", have)
	}
}

// TestIDNARefusesPunycodeOfASCII is GO-2026-5026: a label that decodes to only ASCII passed as another name.
func TestIDNARefusesPunycodeOfASCII(t *testing.T) {
	if name, err := idna.Lookup.ToASCII("xn--example-.com"); err == nil {
		t.Errorf("xn--example-.com is read as %q", name)
	}
}

// TestHTTP2ClientRefusesFrameSizeZero is GO-2026-4918: a server that sends SETTINGS_MAX_FRAME_SIZE 0 (RFC 9113, section
// 6.5.2, allows no less than 16384) kept a client of the Kubernetes API writing empty frames forever.
func TestHTTP2ClientRefusesFrameSizeZero(t *testing.T) {
	client, server := net.Pipe()
	go serveFrameSizeZero(server)
	// This is the code that had the fault; client-go takes it with ConfigureTransports.
	transport := &http2.Transport{ //nolint:staticcheck // see above
		AllowHTTP: true, DialTLS: func(string, string, *tls.Config) (net.Conn, error) { return client, nil },
	}
	answered := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.example/",
			strings.NewReader("body"))
		if err == nil {
			var response *http.Response
			if response, err = transport.RoundTrip(request); err == nil { //nolint:staticcheck // as above
				err = response.Body.Close()
			}
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("the request went through")
		}
	case <-time.After(time.Minute):
		t.Fatal("the client is still busy after a minute")
	}
}

// serveFrameSizeZero speaks HTTP/2 as far as its settings and reads on until the client gives up.
func serveFrameSizeZero(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := conn.Read(preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	go func() { _ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) }()
	for {
		if _, err := framer.ReadFrame(); err != nil {
			return
		}
	}
}
