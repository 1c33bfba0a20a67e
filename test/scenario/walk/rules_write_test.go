package walk

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rulesOfWriting are those about what is written when.
var rulesOfWriting = []rule{
	{name: "4 the intent to buy that meets a conflict is decided again", bought: 1, live: intentInConflict},
	{name: "4 a deletion that meets a conflict is decided again", bought: 1, live: deletionInConflict},
}

// intentInConflict: a person edits the IPBlock between the decision to buy and the record of the intent.
func intentInConflict(w *world) {
	w.ordered("web", nil)
	service, _ := w.service("web")
	path := objectPath(objectOf(service)) + "/status"
	w.once(to(http.MethodPut, path), func() { w.touch(objectOf(service)) })
	w.served("web")
}

// touch gives an IPBlock another version.
func (w *world) touch(name string) {
	object, err := w.ipBlocks.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Error(err)
		return
	}
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, "example.com/touched", time.Now().Format(time.RFC3339Nano))
	_, err = w.ipBlocks.Update(w.t.Context(), object, metav1.UpdateOptions{})
	w.did("IPBlock %s is edited: %v", name, err)
}

// deletionInConflict: a person edits the IPBlock when its finalizer is gone.
func deletionInConflict(w *world) {
	w.ordered("web", nil)
	w.served("web")
	service, _ := w.service("web")
	path := objectPath(objectOf(service))
	met := false
	w.once(to(http.MethodDelete, path), func() { met = true; w.touch(objectOf(service)) })
	w.once(func(request *http.Request) bool { return met && to(http.MethodDelete, path)(request) }, func() {
		if object := w.object(service); object.Annotations["example.com/touched"] == "" {
			w.fail("the edited IPBlock was deleted")
		}
	})
	w.remove("web")
	w.gone("web")
	time.Sleep(time.Hour)
	if _, err := w.ipBlocks.Get(w.t.Context(), objectOf(service), metav1.GetOptions{}); err == nil || !met {
		w.fail("the IPBlock is left, or was never deleted: %v, %t", err, met)
	}
}
