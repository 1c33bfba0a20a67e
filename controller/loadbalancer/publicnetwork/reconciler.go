// Package publicnetwork keeps the object of the public network of the options, default, and says which other networks
// are served. Of phoenixNAP it reads only what decides that; it shows what the process read for its other work.
package publicnetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Reasons of the events on PublicNetworks.
const (
	// eventNotReady (Warning): the condition Ready is False now, or for another reason than before; says what that is
	// and what to do.
	eventNotReady = "PublicNetworkNotReady"
	// eventReverted (Warning): the spec of the object default was edited, and is again what the options say.
	eventReverted = "PublicNetworkReverted"
)

const (
	// period is between two looks at the objects: each writes a status once at most, because many may watch it.
	period = 30 * time.Second
	// soon is until the next look while the network was not read yet, or after a failure.
	soon = 5 * time.Second
)

// Objects are the PublicNetworks on the API server.
type Objects interface {
	List(ctx context.Context, options metav1.ListOptions) (*v1beta1.PublicNetworkList, error)
	Create(ctx context.Context, object *v1beta1.PublicNetwork, options metav1.CreateOptions) (*v1beta1.PublicNetwork,
		error)
	Update(ctx context.Context, object *v1beta1.PublicNetwork, options metav1.UpdateOptions) (*v1beta1.PublicNetwork,
		error)
	UpdateStatus(ctx context.Context, object *v1beta1.PublicNetwork, options metav1.UpdateOptions) (
		*v1beta1.PublicNetwork, error)
}

// Networks is what the process has read of the account.
type Networks interface {
	// LastNetwork returns the last answer about a network, when it was requested, and the error of the latest request
	// if it failed. It sends no request.
	LastNetwork(id string) (public network.Network, askedAt time.Time, err error)
	// Network reads a network if that was not requested since a time.
	Network(ctx context.Context, id string, after time.Time) (network.Network, error)
	// LastReview returns when the blocks of the account were read.
	LastReview() account.Review
}

// Config configures a Reconciler.
type Config struct {
	Objects  Objects
	Networks Networks
	// Nodes is the shared informer.
	Nodes coreinformers.NodeInformer
	// Events are recorded on PublicNetworks.
	Events record.EventRecorder
	// Options are those of the process. Without a load balancer no network is served.
	Options *config.Config
	// Further receives the networks that are served beside that of the options.
	Further *Further
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Reconciler creates the object default, reverts edits of its spec, and writes the status of all PublicNetworks.
type Reconciler struct {
	config Config
	synced cache.InformerSynced

	undefined bool // the definition was missing at the last look
}

// New returns a Reconciler. It starts nothing.
func New(config Config) *Reconciler {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Reconciler{config: config, synced: config.Nodes.Informer().HasSynced}
}

// Run keeps the objects until ctx ends, and then returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced) {
		return nil
	}
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		seen, err := r.sync(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to update PublicNetworks")
		}
		if err != nil || !seen {
			return soon
		}
		return period
	})
}

// look is what the process knows of a network.
func (r *Reconciler) look(id string) sight {
	if id == "" {
		return sight{}
	}
	public, askedAt, err := r.config.Networks.LastNetwork(id)
	return sight{network: public, askedAt: askedAt, err: err, review: r.config.Networks.LastReview()}
}

// sync looks at all objects once. That the definition is missing is no error: nothing depends on it. seen reports
// whether all networks that are served were read.
func (r *Reconciler) sync(ctx context.Context) (seen bool, err error) {
	s := r.look(r.config.Options.LoadBalancer.Network.ID)
	seen = s.seen()
	list, err := r.config.Objects.List(ctx, metav1.ListOptions{})
	if client.Undefined(err) {
		if !r.undefined {
			klog.FromContext(ctx).Info("The definition of PublicNetwork is not installed, so no object shows the " +
				"public network; to change that, kubectl apply -k deploy/crds")
		}
		r.undefined = true
		r.config.Further.set(nil, true)
		return seen, nil
	}
	if err != nil {
		return seen, fmt.Errorf("list the PublicNetworks: %w", err)
	}
	r.undefined = false
	c := candidates{options: r.config.Options, all: list.Items, vlans: r.vlans(ctx, list.Items)}
	served, complete := c.served()
	r.config.Further.set(served, complete)
	seen = seen && complete
	for _, object := range served {
		seen = seen && r.look(object.Spec.ID).seen()
	}
	missing := r.config.Options.LoadBalancer.Enabled()
	var failures []error // that of one object does not keep the others waiting
	for i := range list.Items {
		object := &list.Items[i]
		if object.Name == v1beta1.DefaultNetwork {
			missing = false
		}
		failures = append(failures, ignoreChanged(r.reconcile(ctx, object, s, c)))
	}
	if missing {
		failures = append(failures, r.create(ctx, s))
	}
	return seen, errors.Join(failures...)
}

// vlans reads the VLAN IDs that decide which networks are served, see candidates.
func (r *Reconciler) vlans(ctx context.Context, all []v1beta1.PublicNetwork) map[string]int {
	option := r.config.Options.LoadBalancer
	further := slices.ContainsFunc(all, func(o v1beta1.PublicNetwork) bool { return o.Spec.ID != option.Network.ID })
	if !announcer.KnowsByInterface(option.Announcer) || !further {
		return nil
	}
	vlans := map[string]int{}
	read := func(id string) {
		public, err := r.config.Networks.Network(ctx, id, time.Time{})
		if err == nil || pnap.IsInaccessible(err) {
			vlans[id] = public.VLAN
		}
	}
	read(option.Network.ID)
	for i := range all {
		read(all[i].Spec.ID)
	}
	return vlans
}

// ignoreChanged returns nil for an error about an object that was changed or deleted meanwhile: the next look sees it.
func ignoreChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// create creates the object default.
func (r *Reconciler) create(ctx context.Context, s sight) error {
	object := &v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.DefaultNetwork},
		Spec: desired(r.config.Options)}
	created, err := r.config.Objects.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		err = kept(created, object.Spec)
	}
	if err != nil {
		return fmt.Errorf("create PublicNetwork %s: %w", object.Name, err)
	}
	klog.FromContext(ctx).Info("Created the PublicNetwork of the option loadbalancer", "object", created.Name, "id",
		created.Spec.ID)
	return ignoreChanged(r.show(ctx, created, s))
}

// kept checks what the API server stored: a definition of another version, or a webhook, may have changed it.
func kept(stored *v1beta1.PublicNetwork, spec v1beta1.PublicNetworkSpec) error {
	if equality.Semantic.DeepEqual(stored.Spec, spec) {
		return nil
	}
	return errors.New("the API server did not keep its spec as it was written; exclude it from the admission webhook " +
		"that changes it, or install the definitions of this version: kubectl apply -k deploy/crds")
}

// reconcile brings one object up to date.
func (r *Reconciler) reconcile(ctx context.Context, object *v1beta1.PublicNetwork, s sight, c candidates) error {
	if NamedOf(object) != r.config.Options.LoadBalancer.Network {
		why, refused := c.refuse(object)
		if !refused {
			return r.show(ctx, object, r.look(object.Spec.ID))
		}
		next := *object.Status.DeepCopy()
		set(&next, object.Generation, v1beta1.ConditionReady, why, r.config.Now())
		return r.write(ctx, object, next)
	}
	object, err := r.revert(ctx, object)
	if err != nil {
		return err
	}
	return r.show(ctx, object, s)
}

// revert has the spec say again what the options say. It is the options that count, so nothing depends on it.
func (r *Reconciler) revert(ctx context.Context, object *v1beta1.PublicNetwork) (*v1beta1.PublicNetwork, error) {
	spec := desired(r.config.Options)
	if equality.Semantic.DeepEqual(object.Spec, spec) {
		return object, nil
	}
	changed := object.DeepCopy()
	changed.Spec = spec
	stored, err := r.config.Objects.Update(ctx, changed, metav1.UpdateOptions{})
	if err == nil {
		err = kept(stored, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("update PublicNetwork %s: %w", object.Name, err)
	}
	r.config.Events.Event(reference(stored), corev1.EventTypeWarning, eventReverted, "The spec was not what the "+
		"options of the controller say, and is again; change the options to change it")
	return stored, nil
}

// show writes the status of the network of the options.
func (r *Reconciler) show(ctx context.Context, object *v1beta1.PublicNetwork, s sight) error {
	nodes, err := r.config.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	return r.write(ctx, object, status(object, s, nodes, r.config.Now()))
}

// write writes a status that has changed, and records an event if the network is not ready for a new reason.
func (r *Reconciler) write(ctx context.Context, object *v1beta1.PublicNetwork, next v1beta1.PublicNetworkStatus) error {
	if equality.Semantic.DeepEqual(object.Status, next) {
		return nil
	}
	changed := object.DeepCopy()
	changed.Status = next
	if _, err := r.config.Objects.UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update the status of PublicNetwork %s: %w", object.Name, err)
	}
	before := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionReady)
	after := meta.FindStatusCondition(next.Conditions, v1beta1.ConditionReady)
	if after == nil || after.Status != metav1.ConditionFalse || before != nil && before.Reason == after.Reason {
		return nil
	}
	klog.FromContext(ctx).Info("A PublicNetwork is not ready", "object", object.Name, "reason", after.Reason, "message",
		after.Message)
	r.config.Events.Event(reference(object), corev1.EventTypeWarning, eventNotReady, after.Message)
	return nil
}

// reference is a PublicNetwork as the object of events.
func reference(object *v1beta1.PublicNetwork) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "PublicNetwork", Name: object.Name,
		UID: object.UID}
}
