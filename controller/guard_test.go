package main

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
)

// Every client that the framework may build after us passes the leadership, with credentials of each
// controller too, and the lifecycle's own does not.
//
//proves:known-bugs/change-after-handover
func TestEveryClientIsGuarded(t *testing.T) {
	for name, separate := range map[string]bool{"shared credentials": false, "credentials of each controller": true} {
		t.Run(name, func(t *testing.T) {
			lifecycle := newLifecycle(t.Context())
			defer lifecycle.begin()()
			reached := 0
			kubeconfig := &rest.Config{Host: "https://server.example",
				WrapTransport: func(http.RoundTripper) http.RoundTripper {
					return carrier(func(*http.Request) (*http.Response, error) {
						reached++
						return nil, http.ErrAbortHandler
					})
				}}
			completed := (&appconfig.Config{Kubeconfig: kubeconfig}).Complete()
			completed.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials = separate
			completed.ClientBuilder = clientbuilder.SimpleControllerClientBuilder{ClientConfig: kubeconfig}
			if separate {
				completed.ClientBuilder = clientbuilder.SimpleControllerClientBuilder{ClientConfig: rest.CopyConfig(
					kubeconfig)}
			}
			if err := lifecycle.guard(completed, false); err != nil {
				t.Fatal(err)
			}
			lifecycle.quiesce(t.Context())
			built, err := completed.ClientBuilder.Client("x")
			if err != nil {
				t.Fatal(err)
			}
			ofConfig, err := completed.ClientBuilder.Config("x")
			if err != nil {
				t.Fatal(err)
			}
			// reached has the result
			_ = built.CoreV1().RESTClient().Post().AbsPath("/api/v1/nodes").Do(t.Context()).Error()
			_ = completed.Client.CoreV1().RESTClient().Post().AbsPath("/api/v1/nodes").Do(t.Context()).Error()
			post(t, ofConfig)
			post(t, completed.Kubeconfig)
			if reached != 0 {
				t.Errorf("%d changes reached the server after the end", reached)
			}
			post(t, lifecycle.direct)
			if reached != 1 {
				t.Errorf("the lifecycle's own client reached the server %d times", reached)
			}
		})
	}
}

// The account may be changed by whoever is elected, or without leader election.
func TestChangesAreFencedByTheElection(t *testing.T) {
	for _, elect := range []bool{false, true} {
		lifecycle := newLifecycle(t.Context())
		defer lifecycle.begin()()
		completed := (&appconfig.Config{Kubeconfig: &rest.Config{Host: "https://server.example"}}).Complete()
		election := &completed.ComponentConfig.Generic.LeaderElection
		election.LeaderElect = elect
		election.RenewDeadline.Duration = 7 * time.Second
		if err := lifecycle.guard(completed, false); err != nil {
			t.Fatal(err)
		}
		err := lifecycle.leadership.MayChange()
		var fenced *leader.FencedError
		if !elect && err != nil || elect && (!errors.As(err, &fenced) || fenced.Deadline != 7*time.Second) {
			t.Errorf("with leader election %t: %v", elect, err)
		}
	}
}

// carrier makes a function an http.RoundTripper.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(request *http.Request) (*http.Response, error) { return c(request) }

func post(t *testing.T, config *rest.Config) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/nodes", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
}
