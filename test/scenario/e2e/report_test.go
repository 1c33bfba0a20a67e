//go:build linux

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// report is what the tests of Kubernetes report of a run, in the format of Ginkgo
// (https://pkg.go.dev/github.com/onsi/ginkgo/v2/types#Report).
type report struct{ SpecReports []specReport }

type specReport struct {
	ContainerHierarchyTexts    []string
	LeafNodeType, LeafNodeText string
	State                      string
	RunTime                    time.Duration
	Failure                    struct{ Message string }
	CapturedGinkgoWriterOutput string
}

// readReport returns what was run, and what skipped itself. What the focus leaves out is not among it.
func readReport(raw []byte) (specs []specReport, err error) {
	var reports []report
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, err
	}
	for _, r := range reports {
		for _, spec := range r.SpecReports {
			leftOut := spec.State == "pending" || spec.State == "skipped" && spec.Failure.Message == ""
			if !leftOut && (spec.LeafNodeType == "It" || spec.failed()) {
				specs = append(specs, spec)
			}
		}
	}
	return specs, nil
}

// verdict is how many tests of Kubernetes ended how.
type verdict struct{ passed, failed, refused, onePod, skipped int }

func (v verdict) add(w verdict) verdict {
	return verdict{v.passed + w.passed, v.failed + w.failed, v.refused + w.refused, v.onePod + w.onePod,
		v.skipped + w.skipped}
}

func tally(specs []specReport) (v verdict) {
	for _, spec := range specs {
		switch {
		case !spec.failed() && spec.State == "passed":
			v.passed++
		case !spec.failed():
			v.skipped++
		case spec.refusedByPods():
			v.refused++
		case spec.onePodAnswered():
			v.onePod++
		default:
			v.failed++
		}
	}
	return v
}

func (r specReport) failed() bool {
	return r.State != "passed" && r.State != "skipped" && r.State != "pending"
}

func (r specReport) name() string {
	return strings.TrimSpace(strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " "))
}

// log says how a test of Kubernetes ended, and why it did not pass.
func (r specReport) log(t *testing.T) {
	t.Helper()
	switch {
	case !r.failed():
		t.Logf("%s in %.0f s: %s %s", r.State, r.RunTime.Seconds(), r.name(), r.Failure.Message)
	case r.refusedByPods():
		t.Logf("failed after %.0f s, only because pods that were called ready refused connections: %s: %s",
			r.RunTime.Seconds(), r.name(), r.Failure.Message)
	case r.onePodAnswered():
		t.Logf("failed after %.0f s, because the node that has the address has one of the pods: %s: %s",
			r.RunTime.Seconds(), r.name(), r.Failure.Message)
	default:
		t.Errorf("%s after %.0f s: %s: %.2000s", r.State, r.RunTime.Seconds(), r.name(), r.Failure.Message)
	}
}

// refusedByPods reports that a test of rolling updates failed for the emulated machine's sake: its pods have no
// readiness probe, so that they get connections as soon as they start, and under emulation their program needs seconds
// until it listens. Such a pod refuses a connection; an address that no node answers for would let it time out. One in
// a hundred of the errors may be another one, as of a request that its pod did not answer any more.
func (r specReport) refusedByPods() bool {
	if !strings.Contains(r.LeafNodeText, "connectivity disruption during rolling update") {
		return false
	}
	var refused, others int
	for line := range strings.Lines(r.CapturedGinkgoWriterOutput) {
		if !strings.Contains(line, "Got error testing for reachability") {
			continue
		}
		line = strings.TrimSpace(line)
		if !strings.HasSuffix(line, "connect: connection refused") &&
			!strings.HasSuffix(line, "connection reset by peer") {
			others++
			continue
		}
		refused++
	}
	return refused > 0 && others <= refused/100
}

// onePodAnswered reports that the test failed which switches the session affinity of a Service with
// externalTrafficPolicy Local off, and then waits for answers of different pods. All requests to an address reach one
// node, and that answers with its own pods: of three on two nodes, it may have one.
func (r specReport) onePodAnswered() bool {
	const switched = "switch session affinity for LoadBalancer service with Local traffic policy"
	return strings.Contains(r.LeafNodeText, switched) &&
		strings.Contains(r.Failure.Message, "Affinity shouldn't hold but did")
}

// TestReport: only refused connections of a rolling update are the machine's fault, and one test depends on where its
// pods run.
func TestReport(t *testing.T) {
	const (
		rolling  = "should not have connectivity disruption during rolling update with externalTrafficPolicy=Local"
		got      = "loadbalancer.go:1371] Got error testing for reachability of http://203.0.113.10:80/echo: Get: "
		refused  = got + "dial tcp 203.0.113.10:80: connect: connection refused\n"
		lost     = got + "dial tcp 203.0.113.10:80: i/o timeout\n"
		switched = "should be able to switch session affinity for LoadBalancer service with Local traffic policy"
	)
	spec := func(text, state, message, output string) specReport {
		r := specReport{LeafNodeType: "It", LeafNodeText: text, State: state, CapturedGinkgoWriterOutput: output}
		r.Failure.Message = message
		return r
	}
	raw, err := json.Marshal([]report{{SpecReports: []specReport{
		spec("a", "passed", "", ""), spec("b", "skipped", "", ""), spec("c", "skipped", "Need at least 3 nodes", ""),
		spec("d", "failed", "too many errors", refused),
		spec(rolling, "failed", "too many errors", refused+"more\n"+refused),
		spec(rolling, "failed", "too many errors", strings.Repeat(refused, 100)+lost),
		spec(switched, "failed", "Affinity shouldn't hold but did.", ""), spec(switched, "failed", "no address", ""),
		spec(rolling, "failed", "too many errors", strings.Repeat(refused, 99)+lost),
		spec(rolling, "timedout", "", "nothing"),
		{LeafNodeType: "BeforeSuite", State: "passed"}, {LeafNodeType: "BeforeSuite", State: "failed"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	specs, err := readReport(raw)
	want := verdict{passed: 1, failed: 5, refused: 2, onePod: 1, skipped: 1}
	if v := tally(specs); err != nil || v != want {
		t.Errorf("%+v, %v, want %+v", v, err, want)
	}
}
