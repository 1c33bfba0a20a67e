package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

const (
	kubeVIPModule   = "github.com/kube-vip/kube-vip"
	kubeVIPPrefix   = "kube-vip-"
	kubeVIPVariable = "KUBE_VIP_BINARY"
)

func kubeVIP(version string) spec {
	return spec{dir: "test/env/tools/kube-vip/" + version, module: kubeVIPModule, pkg: kubeVIPModule,
		stamp: "main.Version", minutes: 1}
}

// PinnedKubeVIPs lists the versions of kube-vip that are built here, the newest first. The manifests install the
// newest.
func PinnedKubeVIPs() []string { return []string{"v1.2.2", "v1.0.0", "v0.9.1"} }

// KubeVIPs lists the versions of kube-vip to be tried: PinnedKubeVIPs or, if $KUBE_VIP_BINARY names a program, only the
// version that this program prints.
func KubeVIPs(ctx context.Context) ([]string, error) {
	program, err := existing(kubeVIPVariable, os.Getenv(kubeVIPVariable))
	if err != nil {
		return nil, err
	}
	if program == "" {
		return PinnedKubeVIPs(), nil
	}
	out, err := exec.CommandContext(ctx, program, "version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %s version: %w", kubeVIPVariable, program, err)
	}
	version := versionOfKubeVIP(string(out))
	if version == "" {
		return nil, fmt.Errorf("%s: `%s version` prints no version of kube-vip: %q", kubeVIPVariable, program, out)
	}
	return []string{version}, nil
}

// KubeVIP returns the path of the kube-vip of a version that KubeVIPs lists, which is built on first use; the first of
// them if version is empty.
func KubeVIP(ctx context.Context, version string) (string, error) {
	if version == "" {
		versions, err := KubeVIPs(ctx)
		if err != nil {
			return "", err
		}
		version = versions[0]
	}
	return Binary(ctx, kubeVIPPrefix+version)
}

var printedVersion = regexp.MustCompile(`(?m)^Version:\s+(\S+)$`)

// versionOfKubeVIP finds the version in what `kube-vip version` prints, or returns "". A build without a version prints
// none that has a number.
func versionOfKubeVIP(printed string) string {
	if m := printedVersion.FindStringSubmatch(printed); m != nil {
		return m[1]
	}
	return ""
}
