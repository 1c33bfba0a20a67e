//go:build linux

package netstate

import (
	"context"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// TestCache: cached tables are used only while a watch runs, no change was reported, and they are not too old.
func TestKept(t *testing.T) {
	old := tables{links: []check.Link{{Index: 1, Name: "as it was"}}}
	for name, tc := range map[string]struct {
		watched bool
		changes uint64
		age     time.Duration
		want    bool
	}{
		"unchanged":       {watched: true, changes: 7, age: maxAge / 2, want: true},
		"changed":         {watched: true, changes: 8, age: maxAge / 2},
		"old":             {watched: true, changes: 7, age: maxAge},
		"not watched":     {changes: 7, age: maxAge / 2},
		"a bond is gone":  {watched: true, changes: 7},
		"never been read": {watched: true, changes: 7},
	} {
		k := tableCache{kept: old, after: 7, at: time.Now().Add(-tc.age)}
		switch name {
		case "a bond is gone":
			k.kept = tables{links: []check.Link{{Index: 1 << 30, Bond: &check.Bond{}}}}
		case "never been read":
			k.at = time.Time{}
		default:
		}
		k.watched.Store(tc.watched)
		k.changes.Store(tc.changes)
		got, err := k.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kept := got.links[0].Name == "as it was"; kept != tc.want {
			t.Errorf("%s: the cached tables are used: %t, want %t", name, kept, tc.want)
		}
		if !tc.want && (got.links[0].Name == "" || !k.at.IsZero() != tc.watched) {
			t.Errorf("%s: read %+v, kept: %t", name, got.links[0], !k.at.IsZero())
		}
	}
}

// TestNewWatch: changes before the watch are read, although they were not reported.
func TestNewWatch(t *testing.T) {
	r := NewReader()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		before := r.cache.changes.Load()
		ended := make(chan error, 1)
		go func() { ended <- r.Watch(ctx, func() {}) }()
		for !r.cache.watched.Load() {
			time.Sleep(time.Millisecond)
		}
		if r.cache.changes.Load() == before {
			t.Error("the cached tables are used when a watch starts")
		}
		if _, err := r.Read(ctx); err != nil || r.cache.at.IsZero() {
			t.Errorf("nothing is kept while watched: %v", err)
		}
		cancel()
		if err := <-ended; err != nil || r.cache.watched.Load() {
			t.Errorf("the watch counts after its end, or it failed: %v", err)
		}
	}
}

// BenchmarkRead compares a full read with a cached one.
func BenchmarkRead(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(map[bool]string{false: "full", true: "cached"}[watched], func(b *testing.B) {
			r := NewReader()
			r.cache.watched.Store(watched)
			for b.Loop() {
				if _, err := r.Read(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
