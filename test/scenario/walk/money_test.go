package walk

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The classes of disturbances that cost money unless each is bounded.
const (
	// An author creates Services whose blocks are to outlive them, edits them and deletes them, under ever other names.
	classRetained = "retained_churn"
	// A 429 asks for a pause of 30 days, for one in the past, or in words that mean nothing.
	classHeaders = "absurd_header"
	// The answers show no tags for up to 5 minutes, of one block or of all, while Services are deleted and created.
	classUntagged = "answers_without_tags"
	// A webhook removes what an update adds: finalizers, or the record of a purchase.
	classWebhook = "webhook_strips"
	// The API refuses a purchase because a tag was made a moment ago.
	classFreshTag = "fresh_tag"
)

// The bounds of what outlives its Service, as the defaults of the options set them.
const (
	maxRetained             = 2
	maxRetainedPerNamespace = 1
)

// churn has an author leave block after block behind.
func (w *world) churn() {
	w.inject(classRetained)
	for range 2 + w.random.IntN(4) {
		name := fmt.Sprintf("churn-%d", w.random.IntN(1000))
		wish := map[string]string{contract.ServiceIPRetain: contract.TagTrue}
		late := w.random.IntN(3) == 0
		if late {
			wish = nil
		}
		w.createWith(name, wish)
		time.Sleep(w.upTo(4 * time.Minute))
		if late { // it is asked for when the Service goes
			w.edit(name, "retained", func(s *corev1.Service) {
				s.Annotations[contract.ServiceIPRetain] = contract.TagTrue
			})
		}
		w.remove(name)
	}
}

// judgeRetained counts what outlives Services.
func (w *world) judgeRetained() {
	kept := slices.DeleteFunc(w.ours(), func(b block) bool { return b.tags[contract.TagRetain] != contract.TagTrue })
	if most := min(maxRetained, maxRetainedPerNamespace); len(kept) > most && !w.excess { // there is one namespace
		w.excess = true
		w.fail("%d blocks outlive their Services, at most %d is right: %v", len(kept), most, kept)
	}
}

// absurdHeader has a 429 ask for a pause that no one can mean.
func (w *world) absurdHeader() {
	w.inject(classHeaders)
	headers := []string{
		fmt.Sprint(30 * 24 * 60 * 60), "99999999999999999999", "-5", "soon", "1.5",
		time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat), time.Unix(0, 0).UTC().Format(http.TimeFormat),
	}
	paths := []string{blocksPath, blocksPath + "/*", "/networks/v1/public-networks/*", ""}
	fault := pnapsim.Fault{Path: paths[w.random.IntN(len(paths))], Action: pnapsim.FaultStatus,
		Status: http.StatusTooManyRequests, RetryAfterText: headers[w.random.IntN(len(headers))]}
	w.did("Retry-After: %s", fault.RetryAfterText)
	w.arm(fault)
}

// hideTags has answers show no tags. Services are deleted and created meanwhile.
func (w *world) hideTags() {
	if time.Now().Before(w.mismatchEnds) {
		return
	}
	w.inject(classUntagged)
	length := []time.Duration{45 * time.Second, 5 * time.Minute}[w.random.IntN(2)]
	hidden := pnapsim.Fault{Method: http.MethodGet, Action: pnapsim.FaultDropField, Field: "tags",
		Times: -1, For: pnapsim.Duration(length)}
	element := -1
	if w.random.IntN(3) == 0 {
		element = w.random.IntN(6)
	}
	for path, at := range map[string]int{blocksPath: element, blocksPath + "/*": -1} {
		if element < 0 || w.random.IntN(2) == 0 {
			hidden.Path = path
			hidden.Element = at
			w.arm(hidden)
		}
	}
	// Where the list lacks a new block for long, only the index shows it: without it no one could find the block.
	if w.random.IntN(2) == 0 && time.Duration(w.latencies.ListLag) < time.Minute {
		index := hidden
		index.Path = "/tag-manager/v1/tags"
		index.Field = "resourceAssignments"
		index.Element = -1
		w.arm(index)
	}
	time.Sleep(w.upTo(20 * time.Second))
	w.remove(w.anyName())
	w.createWith(w.anyName(), nil)
	w.remove(w.anyName())
	time.Sleep(w.upTo(length))
}

// interfere has a webhook remove what updates add, for a while.
func (w *world) interfere() {
	w.inject(classWebhook)
	w.mu.Lock()
	w.webhook = []string{"finalizers", "records", "both"}[w.random.IntN(3)]
	what := w.webhook
	w.mu.Unlock()
	w.did("a webhook removes %s", what)
	for range 2 {
		w.createService()
		time.Sleep(w.upTo(time.Minute))
	}
	w.mu.Lock()
	w.webhook = ""
	w.mu.Unlock()
	w.did("the webhook is repaired")
}

// admit is the webhook: what stored lacks is not added.
func (w *world) admit(changed, stored metav1.Object) {
	w.mu.Lock()
	webhook := w.webhook
	w.mu.Unlock()
	object, isBlock := changed.(*v1beta1.IPBlock)
	if webhook == "objects" && isBlock {
		object.Finalizers = nil // of new ones, too
	}
	if webhook == "" || webhook == "objects" || stored == nil {
		return
	}
	if webhook != "records" {
		changed.SetFinalizers(slices.DeleteFunc(changed.GetFinalizers(), func(f string) bool {
			return !slices.Contains(stored.GetFinalizers(), f)
		}))
	}
	before, wasBlock := stored.(*v1beta1.IPBlock)
	if isBlock && wasBlock && webhook != "finalizers" && before.Status.Purchase == nil {
		object.Status.Purchase = nil
	}
}

// judgeIntent holds a purchase that is about to be sent against what is recorded of it: without a finalizer and a
// record no one would look for the block. A process that was stopped decided on what was there before.
func (w *world) judgeIntent(p *process, request *http.Request) {
	w.mu.Lock()
	webhook := w.webhook
	w.mu.Unlock()
	if webhook == "" || request.GetBody == nil || p.isLost() {
		return
	}
	body, err := request.GetBody()
	if err != nil {
		return
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return
	}
	order := string(raw)
	for _, service := range w.services() { //nolint:contextcheck // the observer's view does not end with the request
		if strings.Contains(order, `"`+contract.ServiceTag(namespace, service.Name)+`"`) && len(service.Finalizers) == 0 {
			w.fail("a block is bought for Service %s, which has no finalizer", service.Name)
		}
	}
	if !w.isRecorded(order) { //nolint:contextcheck // nor does this
		w.fail("a block is bought without a record: %s", order)
	}
}

// isRecorded reports whether an IPBlock has the nonce of an order.
func (w *world) isRecorded(order string) bool {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(object v1beta1.IPBlock) bool {
		r, recorded := allocation.RecordOf(&object)
		return recorded && r.Nonce != "" && strings.Contains(order, r.Nonce)
	})
}

// noteFreshTag counts purchases that the API refuses because a tag is not usable yet.
func (w *world) noteFreshTag(response *http.Response) {
	if response == nil || response.StatusCode != http.StatusBadRequest {
		return
	}
	raw, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(strings.NewReader(string(raw)))
	if err == nil && strings.Contains(string(raw), "does not exist") {
		w.inject(classFreshTag)
	}
}
