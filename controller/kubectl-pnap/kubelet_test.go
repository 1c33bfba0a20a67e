package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// kubelet serves the API server's request to run a command in a pod (CRI streaming, protocol v4.channel.k8s.io). It
// runs the command as a process of this machine instead of in a container.
type kubelet struct {
	*testing.T
	// program replaces the program in the image; env is the container's environment.
	program string
	env     []string
	// asked receives the requested commands.
	asked chan []string
}

func newKubelet(t *testing.T, node string) (*kubelet, int32) {
	t.Helper()
	program, err := tools.Product(t.Context(), "./agent")
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{T: t, program: program, asked: make(chan []string, 10)}
	// KUBERNETES_SERVICE_HOST is what every container has. The API server of the test is in a kubeconfig, as the
	// environment of a pod may name one.
	k.env = []string{"PNAP_AGENT_NODE_NAME=" + node, "KUBECONFIG=" + kubeconfig(t, plane.Config()),
		"KUBERNETES_SERVICE_HOST=127.0.0.1"}
	server := httptest.NewTLSServer(http.HandlerFunc(k.exec))
	t.Cleanup(server.Close)
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("the kubelet does not listen on a TCP port")
	}
	return k, int32(address.Port)
}

// exec answers POST /exec/<namespace>/<pod>/<container>?command=….
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		k.Error(err)
		return
	}
	wanted := 3
	if r.URL.Query().Get("input") == "1" {
		wanted = 4
	}
	streams := make(chan httpstream.Stream, wanted)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
		func(stream httpstream.Stream, _ <-chan struct{}) error {
			streams <- stream
			return nil
		})
	if connection == nil {
		k.Error("no connection")
		return
	}
	defer func() { _ = connection.Close() }()
	byType := map[string]httpstream.Stream{}
	for len(byType) < wanted {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-time.After(time.Minute):
			k.Error("the streams were not opened within a minute")
			return
		}
	}
	command := r.URL.Query()["command"]
	k.asked <- append([]string{r.URL.Path}, command...)
	status := k.run(r.Context(), command, byType)
	if err := json.NewEncoder(byType[corev1.StreamTypeError]).Encode(status); err != nil {
		k.Error(err)
	}
	for _, stream := range byType {
		_ = stream.Close()
	}
	<-connection.CloseChan()
}

// run runs the command and returns the status that a kubelet writes.
func (k *kubelet) run(ctx context.Context, command []string, streams map[string]httpstream.Stream) metav1.Status {
	process := exec.CommandContext(ctx, k.program, command[1:]...)
	process.Env = append(os.Environ(), k.env...)
	process.Stdout = streams[corev1.StreamTypeStdout]
	process.Stderr = streams[corev1.StreamTypeStderr]
	if stdin := streams[corev1.StreamTypeStdin]; stdin != nil {
		process.Stdin = stdin
	}
	err := process.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &ended):
		causes := []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(ended.ExitCode())}}
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: causes},
		}
	default:
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error(),
		}
	}
}

// codeOf returns the exit code of the command in the pod.
func codeOf(err error) int {
	var ended utilexec.CodeExitError
	if errors.As(err, &ended) {
		return ended.Code
	}
	return -1
}
