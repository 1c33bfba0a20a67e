package kubefake

import (
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// Client returns a client that reads, changes and watches the objects of the Store.
func (s *Store) Client() *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", ktesting.ObjectReaction(s))
	client.AddWatchReactor("*", s.ReactToWatch)
	return client
}

// ReactToWatch is a ktesting.WatchReactionFunc that serves the watch from the Store.
func (s *Store) ReactToWatch(action ktesting.Action) (handled bool, found watch.Interface, err error) {
	watched, ok := action.(ktesting.WatchActionImpl)
	if !ok {
		return false, nil, nil
	}
	found, err = s.Watch(action.GetResource(), action.GetNamespace(), watched.ListOptions)
	return true, found, err
}
