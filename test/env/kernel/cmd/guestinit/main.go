//go:build linux

// Command guestinit is the first process of the virtual machine in which tests find a kernel with 802.1Q: it
// mounts what programs expect, runs one command, and reports how it ended; the host then switches the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/kernel/guest"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guestinit is the init program of a virtual machine; it does nothing elsewhere")
		os.Exit(2)
	}
	port, result := run()
	if err := report(port, result); err != nil {
		fmt.Fprintf(os.Stderr, "guestinit: %v (result: %s)\n", err, result.Error)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	// The host switches the machine off when it has read the result; until then it must not be lost.
	for {
		_ = unix.Pause()
	}
}

// run prepares the machine and runs the command of the Spec. It returns the port to the host, nil when there is none:
// the port stays open until the result is sent.
func run() (*os.File, guest.Result) {
	spec, err := prepare()
	boot := uptime()
	port, portErr := openPort(guest.Port)
	if err := errors.Join(err, portErr); err != nil {
		return port, guest.Result{Error: err.Error()}
	}
	code, err := execute(spec, port)
	if err != nil {
		return port, guest.Result{Boot: boot, Error: err.Error()}
	}
	return port, guest.Result{ExitCode: code, Boot: boot, Files: fetch(spec.Fetch)}
}

// prepare makes an ordinary Linux system out of an unpacked initramfs.
func prepare() (guest.Spec, error) {
	var spec guest.Spec
	if err := mountAll(); err != nil {
		return spec, err
	}
	data, err := os.ReadFile(guest.SpecPath)
	if err != nil {
		return spec, fmt.Errorf("read what to run: %w", err)
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return spec, fmt.Errorf("read what to run from %s: %w", guest.SpecPath, err)
	}
	if err := installBusybox(); err != nil {
		return spec, err
	}
	if err := loadModules(append([]string{"virtio_pci", "virtio_console", "virtio_blk", "virtio_net", "virtio_rng"},
		spec.Modules...)); err != nil {
		return spec, err
	}
	if spec.Disk {
		if err := mountPayload(); err != nil {
			return spec, err
		}
	}
	return spec, configureNetwork(spec.Network)
}

// uptime is the time since the kernel started.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// fetch reads the wanted files; what does not exist is left out.
func fetch(names []string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil {
			files[name] = data
		}
	}
	return files
}

// report sends the result to the host.
func report(port *os.File, result guest.Result) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if port == nil {
		return errors.New("there is no port to the host")
	}
	return guest.WriteFrame(port, guest.ResultJSON, text)
}
