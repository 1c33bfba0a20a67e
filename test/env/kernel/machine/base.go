//go:build linux

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// metaPackage is the Debian package that depends on the newest kernel for virtual machines.
const metaPackage = "linux-image-cloud-amd64"

// wanted are the modules that tests, the lab, kube-proxy (modes nftables and iptables) and kube-vip need, and the
// machine itself.
var wanted = []string{
	"8021q", "bonding", "bridge", "dummy", "macvlan", "veth", "vxlan", "overlay", "br_netfilter", "sch_netem",
	"sch_ingress", "cls_bpf",
	"virtio_pci", "virtio_net", "virtio_blk", "virtio_console", "virtio_rng",
	"nf_tables", "nft_meta_bridge", "nft_chain_nat", "nft_compat", "nft_ct", "nft_fib", "nft_fib_inet", "nft_fib_ipv4",
	"nft_fib_ipv6",
	"nft_hash", "nft_limit", "nft_log", "nft_masq", "nft_nat", "nft_numgen", "nft_objref", "nft_redir",
	"nft_reject", "nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6",
	"nf_conntrack", "nf_conntrack_netlink", "nf_log_syslog", "nf_nat", "nfnetlink_log",
	"x_tables", "xt_addrtype", "xt_comment", "xt_connmark", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_nat",
	"xt_tcpudp",
	"xt_statistic", "xt_limit", "ipt_REJECT",
}

// base is what every machine boots from.
type base struct {
	// kernel and archive are host paths of the kernel image and of the initramfs without files and command.
	kernel, archive string
}

// Prepare installs the packages that a machine with these programs of the system needs, and makes what every machine
// boots from. Run does the same when it was not done before.
func Prepare(ctx context.Context, programs []string) error {
	_, err := prepare(ctx, programs)
	return err
}

// prepare makes the base once and finds it in the cache from then on.
func prepare(ctx context.Context, programs []string) (base, error) {
	if err := tools.Packages(ctx, append([]string{emulatorProgram, "mke2fs", "busybox"}, programs...)...); err != nil {
		return base{}, err
	}
	init, err := tools.Product(ctx, "./test/env/kernel/cmd/guestinit")
	if err != nil {
		return base{}, err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return base{}, fmt.Errorf("find busybox (install the package busybox-static): %w", err)
	}
	cache, err := tools.CacheDir()
	if err != nil {
		return base{}, err
	}
	cache = filepath.Join(cache, "machine")
	tree, err := kernelTree(ctx, cache)
	if err != nil {
		return base{}, err
	}
	return assemble(ctx, cache, tree, rootFS{Busybox: busybox, Init: init, Wanted: wanted})
}

// assemble writes the initramfs of a kernel tree unless the cache holds one made of the same parts.
func assemble(ctx context.Context, cache, tree string, parts rootFS) (base, error) {
	version, err := onlyEntry(filepath.Join(tree, "lib/modules"))
	if err != nil {
		return base{}, err
	}
	parts.Modules = filepath.Join(tree, "lib/modules", version)
	key, err := keyOf(parts)
	if err != nil {
		return base{}, err
	}
	b := base{
		kernel:  filepath.Join(tree, "boot", "vmlinuz-"+version),
		archive: filepath.Join(cache, "base-"+version+"-"+key+".cpio"),
	}
	if _, err := os.Stat(b.archive); err == nil {
		return b, nil
	}
	return b, writeAtomically(b.archive, func(w io.Writer) error { return parts.write(ctx, w) })
}

// keyOf names the contents of an initramfs. The path of the init program changes with its contents.
func keyOf(parts rootFS) (string, error) {
	busybox, err := os.ReadFile(parts.Busybox)
	if err != nil {
		return "", fmt.Errorf("initramfs: %w", err)
	}
	hash := sha256.Sum256(fmt.Append(busybox, "layout 3", parts))
	return hex.EncodeToString(hash[:])[:16], nil
}

// kernelTree is the directory of the unpacked kernel package. The first one found serves from then on, so that a
// machine that was prepared once needs no package archive any more.
func kernelTree(ctx context.Context, cache string) (string, error) {
	record := filepath.Join(cache, "kernel")
	if known, err := os.ReadFile(record); err == nil {
		if _, err := os.Stat(filepath.Join(string(known), "boot")); err == nil {
			return string(known), nil
		}
	}
	box, err := tools.Default()
	if err != nil {
		return "", err
	}
	name, err := box.DebianDependency(ctx, metaPackage, "linux-image-")
	if err != nil {
		return "", err
	}
	tree, err := box.DebianPackage(ctx, name)
	if err != nil {
		return "", err
	}
	return tree, writeAtomically(record, func(w io.Writer) error {
		_, err := io.WriteString(w, tree)
		return err
	})
}

// onlyEntry is the newest name in a directory that normally holds one.
func onlyEntry(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("kernel package: %w", err)
	}
	if len(entries) == 0 {
		return "", fmt.Errorf("kernel package: %s is empty", dir)
	}
	return entries[len(entries)-1].Name(), nil // they are sorted
}

// writeAtomically writes a file under another name and then moves it to its place, so that no reader gets half of it.
func writeAtomically(path string, write func(io.Writer) error) error {
	err := tools.ReplaceFile(path, func(temporary string) error {
		f, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
