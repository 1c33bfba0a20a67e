package pnap_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// Each level shows more than the one before: operations, then objects, then every exchange, that of the token included.
func TestLevelsOfTheLog(t *testing.T) {
	const operation, object = `API request operation="list IP blocks"`, `203.0.113.0/28`
	const exchange, token = "Answer of phoenixNAP", `operation="get token"`
	for _, test := range []struct {
		level        int
		shown, other []string
	}{
		{level: 0, other: []string{"phoenixNAP"}},
		{level: 2, shown: []string{operation}, other: []string{object, exchange, token}},
		{level: 3, shown: []string{operation, object}, other: []string{exchange, token}},
		{level: 5, shown: []string{operation, object, exchange, token, "Content-Type: application/json",
			"/ips/v1/ip-blocks", "Authorization: [redacted]"}},
	} {
		t.Run(fmt.Sprint(test.level), func(t *testing.T) {
			sim, client := world(t)
			ctx, logged := testlog.At(t, test.level)
			if _, err := client.Blocks(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Server(ctx, thirdServer); err != nil {
				t.Fatal(err)
			}
			if err := client.JoinNetwork(ctx, thirdServer, simtest.NetworkID, nil, true); err != nil {
				t.Fatal(err)
			}
			sim.Advance(time.Hour) // a new token
			if _, err := client.Server(ctx, "000000000000000000000000"); err == nil {
				t.Fatal("a server that does not exist was read")
			}
			text := logged()
			for _, want := range test.shown {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
			for _, other := range test.other {
				if strings.Contains(text, other) {
					t.Errorf("%q belongs to a higher level:\n%s", other, text)
				}
			}
			if strings.Contains(text, simtest.ClientSecret) || strings.Contains(text, "Bearer ") {
				t.Errorf("the log contains a secret:\n%s", text)
			}
			t.Logf("figure log_lines_at_level_%d %d lines", test.level, strings.Count(text, "\n"))
		})
	}
}

// An answer holds secrets in every place, known and unknown ones; none is in the log of any level or in the error, and
// the caller gets the answer as it was sent.
func TestSecretsAreNotLogged(t *testing.T) {
	const secret = "hunter2-secret"
	const token = "tok-hunter2"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "session="+secret)
		w.Header().Set("X-Api-Key", secret)
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		switch {
		case strings.HasSuffix(r.URL.Path, "/token"):
			fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":900}`, token)
		case strings.Contains(r.URL.Path, "proxy"):
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>"+secret+"</html>")
		default:
			fmt.Fprintf(w, `[{"id":"60473c2509268bc77fd06d40","hostname":"node-1","status":"powered-on","password":%q,`+
				`"sshKeys":[%q],"osConfiguration":{"rootPassword":%q,"cloudInit":{"userData":%q}},"note":"sent %s %s",`+
				`"tags":[{"name":"db-password","value":%q}]}]`, secret, secret, secret, secret, token, secret, secret)
		}
	}))
	defer server.Close()
	for _, level := range []int{2, 3, 5, 10} {
		for _, base := range []string{server.URL, server.URL + "/proxy"} {
			client, err := pnap.New(pnap.Config{
				BaseURL: base, TokenURL: server.URL + "/token?api_key=" + secret,
				Credentials: func() (string, string, error) { return "id", secret, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, logged := testlog.At(t, level)
			servers, err := client.Servers(ctx)
			if proxied := base != server.URL; proxied != (err != nil) || !proxied && (len(servers) != 1 ||
				servers[0].Hostname != "node-1") {
				t.Errorf("-v=%d: %v, %v", level, servers, err)
			}
			text := logged() + fmt.Sprint(err)
			if strings.Contains(text, "hunter2") || strings.Contains(text, token) {
				t.Errorf("-v=%d: the log contains a secret:\n%s", level, text)
			}
			if level >= 3 && !strings.Contains(text, "node-1") && !strings.Contains(text, "not JSON") {
				t.Errorf("-v=%d: the answer is missing:\n%s", level, text)
			}
		}
	}
}

// An answer that breaks off is the same failure with its body in the log and without.
func TestABrokenAnswerStaysBroken(t *testing.T) {
	for _, level := range []int{0, 3} {
		sim, client := world(t)
		if err := sim.Arm(pnapsim.Fault{Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultTruncate}); err != nil {
			t.Fatal(err)
		}
		ctx, _ := testlog.At(t, level)
		if _, err := client.Blocks(ctx, nil); !pnap.IsUnanswered(err) {
			t.Errorf("-v=%d: %v, want a missing answer", level, err)
		}
	}
}
