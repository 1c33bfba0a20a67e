package services

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"
)

// TestAServiceThatWaitsKeepsNoOtherWaiting: a provider that waits inside of a sync, or works off what fails
// first, lets one slow load balancer block all others.
func TestAServiceThatWaitsKeepsNoOtherWaiting(t *testing.T) {
	inTime(t, Config{Workers: 1}, func(w *clocked) {
		w.shop.set(func(s *shop) {
			s.fail = func(_ string, name types.NamespacedName) error {
				switch name.Name {
				case "waits":
					return api.NewRetryError("waiting for IP block to be created", time.Second)
				case "fails":
					return errors.New("location XYZ is not on sale")
				default:
					return nil
				}
			}
		})
		w.create("waits")
		w.create("fails")
		elapse(10 * time.Second)
		w.create("web")
		elapse(10 * time.Millisecond)
		if w.addressOf("web") == "" {
			t.Error("a Service waits for others")
		}
		elapse(time.Minute)
		if n := w.shop.count("ensure", "waits"); n < 60 {
			t.Errorf("the one that waits was looked at %d times in 70 s, want once a second", n)
		}
	})
}
