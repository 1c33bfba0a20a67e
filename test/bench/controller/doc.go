// Package controller measures what the shipped controller costs the phoenixNAP API and the machine, and how long users
// wait for it: the binary at work against a real kube-apiserver and a simulated account that counts requests.
package controller
