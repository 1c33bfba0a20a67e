package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
)

// tokenSeconds is how long a token of a ServiceAccount is valid, in seconds: a day.
const tokenSeconds = 24 * 60 * 60

// User returns the configuration of a client with a certificate of its own for that user name and those groups;
// system:node:<name> in the group system:nodes is a kubelet. RBAC decides what the user may do.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("make a user: the name is empty")
	}
	config := c.anonymous()
	var err error
	config.CertData, config.KeyData, err = c.authority.issue(clientTemplate(name, groups))
	return config, err
}

// IPBlocks returns a client of the cluster's IPBlocks, as a cluster administrator.
func (c *ControlPlane) IPBlocks() *client.IPBlocks { return c.ipBlocks }

// PublicNetworks is IPBlocks for PublicNetworks.
func (c *ControlPlane) PublicNetworks() *client.PublicNetworks { return c.networks }

// ServiceAccount returns the configuration of a client that holds a token of an existing ServiceAccount, got as
// a kubelet gets it for a pod (TokenRequest API). A ServiceAccount that is missing is an error, because the
// manifests under test should have made it.
func (c *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	return c.token(ctx, namespace, name, nil)
}

// ServiceAccountOn is ServiceAccount for a pod that runs on a Node: the token is bound to a Pod with that nodeName, so
// that the API server knows from the token on which Node the client is (the claim
// authentication.kubernetes.io/node-name). The Pod <name>-<node> is made where there is none, and the token dies with
// it. The Node does not have to exist.
func (c *ControlPlane) ServiceAccountOn(ctx context.Context, namespace, name, node string) (*rest.Config, error) {
	wanted := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + node},
		Spec: corev1.PodSpec{ServiceAccountName: name, NodeName: node,
			Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	pods := c.kube.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		pod, err = pods.Get(ctx, wanted.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("make a Pod of ServiceAccount %s/%s on Node %s: %w", namespace, name, node, err)
	}
	return c.token(ctx, namespace, name, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
		Name: pod.Name, UID: pod.UID})
}

func (c *ControlPlane) token(ctx context.Context, namespace, name string,
	bound *authenticationv1.BoundObjectReference) (*rest.Config, error) {
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
		BoundObjectRef: bound}}
	token, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := c.anonymous()
	config.BearerToken = token.Status.Token
	return config, nil
}

// AwaitAccess waits until the API server lets a user do what the first of some rules allows, in a namespace or, if that
// is empty, in the whole cluster: it learns of roles and bindings like every client, after they were written. An error
// says what the user may not do yet.
func (c *ControlPlane) AwaitAccess(ctx context.Context, user, namespace string, rules []rbacv1.PolicyRule) error {
	rule := rules[0]
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0],
		Group: rule.APIGroups[0], Resource: resource, Subresource: subresource}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	review := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes}}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			answer, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		})
	if err != nil {
		return fmt.Errorf("wait until %s may %s %s: %w", user, attributes.Verb, rule.Resources[0], err)
	}
	return nil
}

// anonymous is what every client configuration has: address and authority. The client-side rate limit is
// lifted, because tests must wait only for the server.
func (c *ControlPlane) anonymous() *rest.Config {
	return &rest.Config{Host: c.url, TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certificate}, QPS: -1}
}

// Kubeconfig renders the configuration of User or ServiceAccount as a kubeconfig. An empty serverURL means
// 127.0.0.1; with another one, such as that of a forwarder in the network lab, the client checks the certificate
// against ServerName.
func Kubeconfig(config *rest.Config, serverURL string) ([]byte, error) {
	cluster := clientcmdapi.NewCluster()
	cluster.Server = config.Host
	cluster.CertificateAuthorityData = config.CAData
	if serverURL != "" && serverURL != config.Host {
		cluster.Server = serverURL
		cluster.TLSServerName = ServerName
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData = config.CertData
	user.ClientKeyData = config.KeyData
	user.Token = config.BearerToken
	entry := clientcmdapi.NewContext()
	entry.Cluster = "cluster"
	entry.AuthInfo = "user"

	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["cluster"] = cluster
	kubeconfig.AuthInfos["user"] = user
	kubeconfig.Contexts["default"] = entry
	kubeconfig.CurrentContext = "default"
	return clientcmd.Write(*kubeconfig)
}

// WriteKubeconfig writes Kubeconfig to a file that only its owner may read.
func WriteKubeconfig(path string, config *rest.Config, serverURL string) error {
	content, err := Kubeconfig(config, serverURL)
	if err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o600)
}
