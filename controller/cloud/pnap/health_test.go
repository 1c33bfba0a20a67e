package pnap

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestHealthFollowsTheAPI(t *testing.T) {
	status := http.StatusServiceUnavailable
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, status, []any{}) })
	c := frozen()
	client := clientOf(t, s, func(config *Config) { config.Now = c.now })
	ask := func() { _, _ = client.Servers(t.Context()) } // checked by the health
	if err := client.Health().Err(); err != nil {
		t.Errorf("before the first request: %v", err)
	}
	ask()
	began := c.at
	c.at = c.at.Add(time.Minute)
	ask()
	want := "the phoenixNAP API fails since 2026-03-01T12:00:00Z; it has not answered since the start: list servers: " +
		"answer 503 Service Unavailable"
	if err := client.Health().Err(); err == nil || err.Error() != want || !client.Health().FailingSince.Equal(began) {
		t.Errorf("got %v, want %s", err, want)
	}
	status = http.StatusOK
	c.at = c.at.Add(time.Minute)
	ask()
	if got := client.Health(); got.Failing() || !got.LastSuccess.Equal(c.at) || got.Err() != nil {
		t.Errorf("got %+v", got)
	}
	answered := c.at
	s.Close()
	c.at = c.at.Add(time.Minute)
	ask()
	if got := client.Health(); !got.LastSuccess.Equal(answered) ||
		!strings.Contains(got.Failure, "list servers: no answer:") {
		t.Errorf("got %+v", got)
	}
	if err := client.Health().Err(); err == nil ||
		!strings.Contains(err.Error(), "it last answered at 2026-03-01T12:02:00Z") {
		t.Errorf("got %v", err)
	}
}

// An answer about one object does not count against the API; a rejection of the credentials does.
func TestWhatCountsAsFailing(t *testing.T) {
	for status, want := range map[int]bool{200: false, 400: false, 401: true, 403: false, 404: false, 409: false,
		429: true, 500: true, 503: true} {
		client := clientOf(t, newService(t, func(w http.ResponseWriter,
			_ *http.Request) {
			answer(w, status, map[string]any{"id": "b1"})
		}))
		_, _ = client.Block(t.Context(), "b1") // checked by the health
		if got := client.Health().Failing(); got != want {
			t.Errorf("after %d: failing %t, want %t", status, got, want)
		}
	}
}

func TestARevokedTokenIsNoFailure(t *testing.T) {
	s := newService(t, empty)
	client := clientOf(t, s)
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	for range 2 {
		if _, err := client.Servers(ctx); err != nil {
			t.Fatal(err)
		}
		s.revokeAll()
	}
	if log.Len() > 0 || client.Health().Failing() {
		t.Errorf("health %+v, log %s", client.Health(), log.String())
	}
}

// counted returns the values of all counters and the number of observations of histograms.
func counted(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(m.All()...)
	return gathered(t, registry)
}

func gathered(t *testing.T, registry metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			if histogram := metric.GetHistogram(); histogram != nil {
				values[name] = float64(histogram.GetSampleCount())
				continue
			}
			values[name] = metric.GetCounter().GetValue()
		}
	}
	return values
}

func TestRequestsAreCounted(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/servers") {
			panic(http.ErrAbortHandler)
		}
		answer(w, http.StatusConflict, map[string]any{"message": "busy"})
	})
	m := NewMetrics()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(m.All()...)
	client := clientOf(t, s, func(c *Config) { c.Metrics = m })
	dry := clientOf(t, s, func(c *Config) {
		c.Metrics = m
		c.DryRun = true
	})
	_ = client.DeleteBlock(t.Context(), "b1") // checked by the metrics
	_ = client.DeleteBlock(t.Context(), "b1")
	_ = dry.DeleteBlock(t.Context(), "b1")
	_, _ = client.Server(t.Context(), "s1")
	want := map[string]float64{
		"phoenixnap_api_requests_total code=409 endpoint=delete IP block":     1,
		"phoenixnap_api_requests_total code=unsent endpoint=delete IP block":  1,
		"phoenixnap_api_requests_total code=dry-run endpoint=delete IP block": 1,
		"phoenixnap_api_requests_total code=error endpoint=get server":        1,
		"phoenixnap_api_request_duration_seconds endpoint=delete IP block":    1,
		"phoenixnap_api_request_duration_seconds endpoint=get server":         1,
		"phoenixnap_api_throttled_total reason=backoff":                       1,
		"phoenixnap_api_throttled_total reason=budget":                        0,
		"phoenixnap_api_throttled_total reason=retry-after":                   0,
	}
	if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the API does, and at any log level, neither the secret nor a token leaves the package: not in an error, the
// log, the health, or a metric.
//
//proves:known-bugs/secrets-in-events
func TestNoSecretLeaves(t *testing.T) {
	for name, change := range map[string]func(*service){
		"echo":           func(*service) {},
		"tokens refused": func(s *service) { s.revokeAll() },
		"token endpoint echoes": func(s *service) {
			s.token = func(w http.ResponseWriter, r *http.Request) {
				answer(w, http.StatusBadRequest, map[string]any{"error": r.FormValue("client_secret"),
					"error_description": r.Form.Encode()})
			}
		},
		"wrong secret": func(s *service) { s.secret = "other" },
		"gone":         func(s *service) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				echo := r.Header.Get("Authorization") + " " + testSecret
				status := map[string]int{http.MethodGet: http.StatusInternalServerError,
					http.MethodPost: http.StatusBadRequest}[r.Method]
				answer(w, max(status, http.StatusOK),
					map[string]any{"message": echo, "validationErrors": []string{echo}, "id": "b1"})
			})
			change(s)
			m := NewMetrics()
			client := clientOf(t, s, func(c *Config) { c.Metrics = m })
			var out bytes.Buffer
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out),
				textlogger.Verbosity(10))))
			_, list := client.Blocks(ctx, nil)
			_, buy := client.BuyBlock(ctx, BlockRequest{Location: "ASH", Size: "/29"})
			fmt.Fprintln(&out, list, buy, client.DeleteBlock(ctx, "b1"), client.Health().Err())
			fmt.Fprintf(&out, "%+v %#v\n", list, client.Health())
			fmt.Fprintln(&out, slices.Sorted(maps.Keys(counted(t, m))))
			if !strings.Contains(out.String(), "delete IP block") {
				t.Errorf("nothing was logged: %s", out.String())
			}
			for _, secret := range []string{testSecret, "tok-b"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("%q is part of:\n%s", secret, out.String())
				}
			}
		})
	}
}
