package kubefake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Connect returns a client whose requests take a way: a Line, or what a test puts before one.
func Connect(way http.RoundTripper) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(Config(way))
}

// Config is the configuration of a client whose requests take a way.
func Config(way http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://kubernetes.test", Transport: way, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// IPBlocks returns a client of the IPBlocks of the Store.
func (s *Store) IPBlocks() *client.IPBlocks {
	blocks, err := client.New(Config(s.Line()))
	if err != nil {
		panic(err) // the configuration is the one above
	}
	return blocks
}

// PublicNetworks returns a client of the PublicNetworks of the Store.
func (s *Store) PublicNetworks() *client.PublicNetworks {
	networks, err := client.NewPublicNetworks(Config(s.Line()))
	if err != nil {
		panic(err) // as above
	}
	return networks
}

// EditStatus changes the status of an IPBlock, whatever version it has, as a person with --subresource=status does.
func EditStatus(ctx context.Context, blocks *client.IPBlocks, name string, change func(*v1beta1.IPBlockStatus)) error {
	object, err := blocks.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(&object.Status)
	_, err = blocks.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

// DeleteAllowed deletes an IPBlock with the annotation that allows it, as printed remedies say.
func DeleteAllowed(ctx context.Context, blocks *client.IPBlocks, name string) error {
	return deleteAfter(ctx, blocks, name, func(object *v1beta1.IPBlock) {
		object.Annotations = map[string]string{contract.AllowDeletion: "true"}
	})
}

// Lose removes an IPBlock at once, as a person does who removes its finalizers.
func Lose(ctx context.Context, blocks *client.IPBlocks, name string) error {
	return deleteAfter(ctx, blocks, name, func(object *v1beta1.IPBlock) { object.Finalizers = nil })
}

func deleteAfter(ctx context.Context, blocks *client.IPBlocks, name string, change func(*v1beta1.IPBlock)) error {
	object, err := blocks.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(object)
	if _, err := blocks.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := blocks.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil // it was being deleted already
}

// RoundTrip implements http.RoundTripper: the Store answers in memory.
func (l *Line) RoundTrip(raw *http.Request) (*http.Response, error) {
	if err := raw.Context().Err(); err != nil {
		return nil, err
	}
	if raw.URL.Path == definition {
		return l.definition(raw)
	}
	asked, err := parse(raw)
	if err == nil {
		err = l.store.unserved(raw, asked.gvr)
	}
	if err == nil && raw.Method == http.MethodGet && raw.URL.Query().Get("watch") == "true" {
		return l.watch(raw.Context(), asked)
	}
	var answer runtime.Object
	if err == nil {
		answer, err = l.store.serve(asked)
	}
	if err != nil {
		return respond(raw, failure(err))
	}
	return respond(raw, answer)
}

// definition is where the API server has that of IPBlock.
const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipblocks.networking.phoenixnap.com"

func (l *Line) definition(raw *http.Request) (*http.Response, error) {
	about, defined := l.store.Definition(v1beta1.GroupVersion.WithResource("ipblocks"))
	if !defined {
		return respond(raw, failure(notFound(raw)))
	}
	body, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: about})
	if err != nil {
		return nil, err
	}
	return response(raw, http.StatusOK, io.NopCloser(bytes.NewReader(body))), nil
}

// failure is an error as the API server words it.
func failure(err error) *metav1.Status {
	known := apierrors.APIStatus(nil)
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}

func respond(raw *http.Request, answer runtime.Object) (*http.Response, error) {
	code := http.StatusOK
	if status, isStatus := answer.(*metav1.Status); isStatus && status.Code != 0 {
		code = int(status.Code)
	}
	body, err := encode(answer)
	if err != nil {
		return nil, err
	}
	return response(raw, code, io.NopCloser(bytes.NewReader(body))), nil
}

func response(raw *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Request: raw, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// encode writes an object with its kind, which objects of the tracker lack.
func encode(object runtime.Object) ([]byte, error) {
	if status, isStatus := object.(*metav1.Status); isStatus {
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return json.Marshal(status)
	}
	known, _, err := known().ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(known[0])
	return json.Marshal(object)
}

// selection returns which objects a list or a watch shows.
func selection(r request) (func(runtime.Object) bool, error) {
	query := r.raw.URL.Query()
	wanted, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	field, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(object runtime.Object) bool {
		one, err := meta.Accessor(object)
		return err == nil && (r.namespace == "" || one.GetNamespace() == r.namespace) &&
			(r.name == "" || one.GetName() == r.name) && wanted.Matches(labels.Set(one.GetLabels())) &&
			field.Matches(fields.Set{"metadata.name": one.GetName(), "metadata.namespace": one.GetNamespace()})
	}, nil
}

// stream is a watch.
type stream struct {
	line    *Line
	request request
	chosen  func(runtime.Object) bool
	out     *io.PipeWriter
	// version is up to which changes were reported.
	version int64
}

// body ends the stream when the client closes it.
type body struct {
	*io.PipeReader
	end context.CancelFunc
}

// Close implements io.Closer.
func (b body) Close() error {
	b.end()
	return b.PipeReader.Close()
}

// watch begins a watch. It ends with the request, after the time that the client sets, and when the Line breaks.
func (l *Line) watch(parent context.Context, r request) (*http.Response, error) {
	chosen, err := selection(r)
	if err != nil {
		return respond(r.raw, failure(err))
	}
	in, out := io.Pipe()
	ctx, end := context.WithCancel(parent)
	w := &stream{line: l, request: r, chosen: chosen, out: out}
	initial, err := w.begin()
	if err != nil {
		end()
		return respond(r.raw, failure(err))
	}
	broken := l.breaks()
	lost := context.AfterFunc(parent, func() { _ = in.CloseWithError(context.Canceled) })
	go func() {
		defer end()
		defer lost()
		_ = out.CloseWithError(w.run(ctx, initial, broken))
	}()
	return response(r.raw, http.StatusOK, body{in, end}), nil
}

// begin returns the objects that a watch begins with: all, where the client asks for that or names no version.
func (w *stream) begin() (runtime.Object, error) {
	query := w.request.raw.URL.Query()
	from := query.Get("resourceVersion")
	if query.Get("sendInitialEvents") != "true" && from != "" && from != "0" {
		version, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("invalid resource version " + strconv.Quote(from))
		}
		w.version = version
		return nil, nil
	}
	listed, err := w.line.store.list(w.request)
	if err != nil {
		return nil, err
	}
	version, err := meta.ListAccessor(listed)
	if err != nil {
		return nil, err
	}
	w.version, err = strconv.ParseInt(version.GetResourceVersion(), 10, 64)
	return listed, err
}

// run reports changes until the watch ends.
func (w *stream) run(ctx context.Context, initial runtime.Object, broken <-chan struct{}) error {
	if initial != nil {
		if err := w.sendInitial(initial); err != nil {
			return err
		}
	}
	limit := time.Hour
	if seconds, err := strconv.Atoi(w.request.raw.URL.Query().Get("timeoutSeconds")); err == nil {
		limit = time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	go func() {
		select {
		case <-broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		next, more, forgotten := w.line.store.history.after(w.version)
		switch {
		case forgotten:
			return w.send(watch.Error, failure(apierrors.NewResourceExpired("too old resource version")))
		case next == nil:
			select {
			case <-more:
			case <-ctx.Done():
			}
		case w.line.hold(ctx, w.request.gvr.Resource, next.at):
			if err := w.report(*next); err != nil {
				return err
			}
			w.version = next.version
		}
	}
	return nil
}

// sendInitial reports the objects that are there, and then that these were all.
func (w *stream) sendInitial(listed runtime.Object) error {
	err := meta.EachListItem(listed, func(object runtime.Object) error { return w.send(watch.Added, object) })
	if err != nil || w.request.raw.URL.Query().Get("sendInitialEvents") != "true" {
		return err
	}
	end, err := known().New(w.request.kind)
	if err != nil {
		return err
	}
	mark, err := meta.Accessor(end)
	if err != nil {
		return err
	}
	mark.SetResourceVersion(strconv.FormatInt(w.version, 10))
	mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return w.send(watch.Bookmark, end)
}

// report sends a change as it looks to who sees the chosen objects only.
func (w *stream) report(c change) error {
	if c.key.gvr != w.request.gvr {
		return nil
	}
	is := c.kind != watch.Deleted && w.chosen(c.object)
	was := c.before != nil && w.chosen(c.before)
	switch {
	case is && was:
		return w.send(watch.Modified, c.object)
	case is:
		return w.send(watch.Added, c.object)
	case was:
		return w.send(watch.Deleted, c.object)
	default:
		return nil
	}
}

func (w *stream) send(kind watch.EventType, object runtime.Object) error {
	raw, err := encode(object.DeepCopyObject())
	if err != nil {
		return err
	}
	event, err := json.Marshal(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}})
	if err != nil {
		return err
	}
	_, err = w.out.Write(event)
	return err
}
