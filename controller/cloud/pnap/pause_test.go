package pnap

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A request that waits for the rate limit while the API requires a pause is not sent.
func TestAPauseThatBeginsWhileARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived := 0
		tr := newTransport(withDefaults(Config{RequestsPerSecond: 1}), &tokenSource{
			Config: Config{Now: time.Now, Credentials: func() (string, string, error) { return "", "", nil }},
			token:  "t", renewAt: time.Now().Add(time.Hour), backoff: newBackoff(time.Now),
		}, &condition{now: time.Now})
		tr.base = roundTrip(func(*http.Request) (*http.Response, error) {
			arrived++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
		})
		ask := func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://pnap.example/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := tr.RoundTrip(request)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}
		for range 2 { // the burst
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		answered := make(chan error, 1)
		go func() { answered <- ask() }()
		synctest.Wait()
		tr.hold.start(http.Header{"Retry-After": {"30"}})
		err := <-answered
		var held *unsentError
		if !errors.As(err, &held) || held.retryAfter != 29*time.Second || arrived != 2 {
			t.Errorf("%v, %d requests arrived; want a pause of 29 s and 2", err, arrived)
		}
	})
}
