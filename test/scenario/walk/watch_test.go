package walk

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// The classes of watches that show a process less than there is, while its reads and writes work on what is there now.
const (
	// Changes of Services, of Nodes or of both arrive up to a minute late.
	classWatchLate = "watch_late"
	// No change of them arrives for up to 10 minutes.
	classWatchStill = "watch_stands_still"
	// All watches end, and go on where they were.
	classWatchBroken = "watch_broken"
	// All watches end, and what they have missed is compacted: the process lists again.
	classWatchExpired = "watch_expired"
)

// watchClasses are all of them.
var watchClasses = []string{classWatchLate, classWatchStill, classWatchBroken, classWatchExpired}

// watchIsLate and watchStandsStill are for the next process, too: it is the cache of the API server that falls behind.
func (w *world) watchIsLate() {
	w.inject(classWatchLate)
	w.fallBehind(kubefake.Lag{By: w.upTo(time.Minute)}, w.upTo(10*time.Minute))
}

func (w *world) watchStandsStill() {
	w.inject(classWatchStill)
	length := w.upTo(10 * time.Minute)
	w.fallBehind(kubefake.Lag{Until: time.Now().Add(length)}, length)
}

func (w *world) watchBreaks() {
	w.inject(classWatchBroken)
	w.process.line.Break()
	w.did("watches end")
}

func (w *world) watchExpires() {
	w.inject(classWatchExpired)
	w.store.Compact()
	w.process.line.Break()
	w.did("watches end, and have to list again")
}

// fallBehind lets watches be late for a while.
func (w *world) fallBehind(lag kubefake.Lag, length time.Duration) {
	resources := [][]string{{"services"}, {"nodes"}, {"services", "nodes"}}[w.random.IntN(3)]
	w.setLags(lag, resources)
	w.did("watches of %v are late by %s or stand still until %s, for %s", resources, lag.By,
		lag.Until.Format(time.TimeOnly), length)
	time.AfterFunc(length, func() { w.setLags(kubefake.Lag{}, resources) })
}

// setLags lets the watches of the process be late. What is bought meanwhile is bought for the Nodes of before.
func (w *world) setLags(lag kubefake.Lag, resources []string) {
	w.mu.Lock()
	for _, resource := range resources {
		w.lags[resource] = lag
		if resource == "nodes" {
			w.nodesLate = time.Now().Add(lag.By)
		}
	}
	w.mu.Unlock()
	w.delay(w.process.line)
}

// delay lets a process see the cluster as late as it is shown to anyone.
func (w *world) delay(line *kubefake.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for resource, lag := range w.lags {
		line.SetLag(resource, lag)
	}
}

// endLags ends all delays.
func (w *world) endLags() { w.setLags(kubefake.Lag{}, []string{"services", "nodes"}) }

// nodesAreLate reports whether a process decides by Nodes of more than a minute ago.
func (w *world) nodesAreLate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	lag := w.lags["nodes"]
	return lag != kubefake.Lag{} || time.Since(w.nodesLate) < time.Minute
}
