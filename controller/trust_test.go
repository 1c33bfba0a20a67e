package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestPrivateCertificateAuthority: the shipped program does not trust an API with a certificate of a private authority,
// and says on the Node and in its log what to do. With what components/trusted-ca mounts it works.
func TestPrivateCertificateAuthority(t *testing.T) {
	sim, _ := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	server := httptest.NewTLSServer(sim.Handler())
	t.Cleanup(server.Close)
	client := admin(t)
	register(t, client, "node-1")

	const remedy = "controller.trustedCA of the chart, or deploy/components/trusted-ca"
	p := startController(t, server.URL)
	eventually(t, 60*time.Second, func() error {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "ServerLookupFailed" && strings.Contains(e.Message, remedy) {
				return nil
			}
		}
		return fmt.Errorf("no event with the remedy among %d", len(events.Items))
	})
	p.end()
	if log := p.output(); !strings.Contains(log, "x509: certificate signed by unknown authority") ||
		!strings.Contains(log, remedy) {
		t.Errorf("the log does not say it:\n%s", p.tail())
	}

	mounted := t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(mounted, "ca.crt"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_DIR", mounted)
	p = startController(t, server.URL)
	eventually(t, 60*time.Second, func() error {
		return initialised(getNode(t, client, "node-1"), simtest.Server1ID, "203.0.113.2")
	})
	p.end()
}
