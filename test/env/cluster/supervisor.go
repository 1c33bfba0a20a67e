//go:build linux

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// terminationGrace is how long a pod has between SIGTERM and SIGKILL (terminationGracePeriodSeconds).
const terminationGrace = 30 * time.Second

// awaitExit is how long one look for the end of a program lasts. The lab ends after those that are under way.
const awaitExit = 3 * time.Second

// processes is what the supervisor needs of the lab.
type processes interface {
	StartProcess(ctx context.Context, p lab.Program) (int, error)
	Signal(ctx context.Context, id int, signal syscall.Signal) error
	Await(ctx context.Context, id int, timeout time.Duration) (lab.Process, error)
}

// supervisor stands in for the DaemonSet controller and the kubelets: it keeps one instance of kube-vip on
// every live server whose Node the DaemonSet's node affinity admits, starts it again when it crashes, and ends it with
// SIGTERM where it is not admitted any more. It checks nothing else.
type supervisor struct {
	workload workload
	programs processes
	program  string
	override map[string]string

	mu      sync.Mutex
	running map[string]int // process ID by server
	dead    map[string]bool

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start begins to watch Nodes.
func (s *supervisor) start(ctx context.Context, client kubernetes.Interface) error {
	ctx, s.cancel = context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Nodes().Informer()
	changed := make(chan *corev1.Node, 64)
	notify := func(obj any, gone bool) {
		if node, ok := obj.(*corev1.Node); ok {
			if gone { // as one that no pod may run on
				node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
			}
			select {
			case changed <- node:
			case <-ctx.Done():
			}
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { notify(obj, false) }, UpdateFunc: func(_, obj any) { notify(obj, false) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			notify(obj, true)
		},
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	factory.Start(ctx.Done())
	s.done.Go(func() {
		defer factory.Shutdown()
		for {
			select {
			case <-ctx.Done():
				return
			case node := <-changed:
				if err := s.sync(ctx, node); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "supervise kube-vip", "node", node.Name)
				}
			}
		}
	})
	return nil
}

// stop ends the watch, not the programs.
func (s *supervisor) stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.done.Wait()
}

// forget makes the supervisor ignore a dead server.
func (s *supervisor) forget(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead[server] = true
	delete(s.running, server)
}

// runsOn reports whether kube-vip runs on the server.
func (s *supervisor) runsOn(server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, running := s.running[server]
	return running
}

// sync brings one server to where its Node says it should be.
func (s *supervisor) sync(ctx context.Context, node *corev1.Node) error {
	admitted, err := s.workload.mayRunOn(node)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, running := s.running[node.Name]
	switch {
	case s.dead[node.Name], admitted == running:
		return nil
	case admitted:
		return s.run(ctx, node.Name)
	default:
		delete(s.running, node.Name)
		return s.end(ctx, id)
	}
}

func (s *supervisor) run(ctx context.Context, server string) error {
	// Outside of a pod kube-vip v1.0.0 looks for its kubeconfig below HOME, newer ones where it is configured.
	values := map[string]string{"HOME": lab.Path(kubeVIPHome + "-" + server),
		"k8s_config_file": lab.Path(kubeVIPConfig(server))}
	maps.Copy(values, s.override)
	env, err := s.workload.environment(server, values)
	if err != nil {
		return err
	}
	id, err := s.programs.StartProcess(ctx, lab.Program{
		Host: server, Name: "kube-vip-" + server, Args: append([]string{s.program}, s.workload.container.Args...),
		Env: env,
	})
	if err != nil {
		return fmt.Errorf("start kube-vip on %s: %w", server, err)
	}
	s.running[server] = id
	s.done.Go(func() { s.restart(ctx, server, id) })
	return nil
}

// restart waits for the unexpected end of a program, and starts it again, as a kubelet does.
func (s *supervisor) restart(ctx context.Context, server string, id int) {
	for {
		process, err := s.programs.Await(ctx, id, awaitExit)
		if err != nil {
			return
		}
		if process.Exited {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[server] != id {
		return // it was ended, or its server is gone
	}
	delete(s.running, server)
	klog.FromContext(ctx).Info("kube-vip ended by itself and is started again", "node", server)
	if err := s.run(ctx, server); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "supervise kube-vip", "node", server)
	}
}

func (s *supervisor) end(ctx context.Context, id int) error {
	if err := s.programs.Signal(ctx, id, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end kube-vip: %w", err)
	}
	process, err := s.programs.Await(ctx, id, terminationGrace)
	if err != nil {
		return fmt.Errorf("wait for the end of kube-vip: %w", err)
	}
	if process.Exited {
		return nil
	}
	if err := s.programs.Signal(ctx, id, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill kube-vip: %w", err)
	}
	return errors.New("kube-vip outlived its grace period and was killed")
}

// workload is a DaemonSet as a supervisor without a kubelet sees it: where it may run, and its container's
// command line. It is read from the shipped manifest, so the lab runs what users install.
type workload struct {
	pod       *corev1.Pod
	container corev1.Container
}

// loadWorkload reads the one DaemonSet in the manifest at path.
func loadWorkload(path string) (workload, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return workload{}, fmt.Errorf("read DaemonSet: %w", err)
	}
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		var set appsv1.DaemonSet
		if err := dec.Decode(&set); errors.Is(err, io.EOF) {
			return workload{}, fmt.Errorf("%s holds no DaemonSet with one container", path)
		} else if err != nil {
			return workload{}, fmt.Errorf("%s: %w", path, err)
		}
		if set.Kind == "DaemonSet" && len(set.Spec.Template.Spec.Containers) == 1 {
			return workload{
				pod:       &corev1.Pod{Spec: set.Spec.Template.Spec},
				container: set.Spec.Template.Spec.Containers[0],
			}, nil
		}
	}
}

// mayRunOn reports whether the DaemonSet controller would keep a pod on node: by node selector and required
// node affinity, as the scheduler reads them.
func (w workload) mayRunOn(node *corev1.Node) (bool, error) {
	match, err := nodeaffinity.GetRequiredNodeAffinity(w.pod).Match(node)
	if err != nil {
		return false, fmt.Errorf("match DaemonSet with node %s: %w", node.Name, err)
	}
	return match, nil
}

// environment is the container's environment on the named node as NAME=value; override replaces or adds.
func (w workload) environment(node string, override map[string]string) ([]string, error) {
	values := map[string]string{}
	for _, v := range w.container.Env {
		_, replaced := override[v.Name]
		switch {
		case replaced:
		case v.ValueFrom == nil:
			values[v.Name] = v.Value
		case v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName":
			values[v.Name] = node
		default:
			return nil, fmt.Errorf("container %s: the lab cannot resolve the environment variable %s", w.container.Name,
				v.Name)
		}
	}
	maps.Copy(values, override)
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, nil
}
