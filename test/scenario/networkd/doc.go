// Package networkd holds the tests of a managing agent beside a real systemd-networkd, of printed fixes with the real
// tools that configure a network, and of the commands that findings print.
//
// Faults are made one after the other, in one order where the tool configures the VLAN interface and in the reverse
// order where a person made it by hand; PNAP_SEED_FACTOR=2 runs both orders on both. After each step the bond has its
// ports, MTU, address and route. With netplan the server has the installer's file: a bond of two ports, an address, a
// default route and a private network, from which the real "netplan generate" writes the files of systemd-networkd.
// With ifupdown, Debian's ifup and ifdown and the scripts of the package ifenslave make the bond; with ifupdown2, which
// Proxmox VE has, a bridge over it, too. With ifupdown and
// NetworkManager the whole network is set up again in the end, as at the start of the machine, and no finding comes
// back. Findings whose fixes take the course of another one, with the same files or with commands of ip, are made once,
// on a server that is connected to a switch with LACP.
//
// What is not real:
//
//   - systemctl is not run: the test restarts systemd-networkd itself where a fix says so, and in place of a restart of
//     the machine, deletes all interfaces and sets up the network by its files. Beside it run a system bus and
//     networkctl.
//   - The command line of netplan is a script. For "netplan apply" it does what netplan 0.106 does for
//     systemd-networkd: it runs the real generator, "networkctl reload", and "networkctl reconfigure" with every link
//     that systemd-networkd configures. It does not run udev or the services of other backends. "netplan set" edits the
//     value where the file has it.
//   - The ports are matched by their names, not by their hardware addresses, for a veth has no permanent one. The
//     switch is a bond of the kernel in another network namespace; where there is none, the bond does without LACP.
//   - The packages vlan and bridge-utils are missing: ifupdown makes VLAN interfaces by itself.
//   - Of Proxmox VE only the file of interfaces is there, and Debian's ifupdown2: none of its own packages.
//   - NetworkManager runs without udev and polkit, as in a container: /sys is read-only above /sys/devices. Its
//     profiles are those that cloud-init, the program of Debian's package, writes for the network of the server.
package networkd
