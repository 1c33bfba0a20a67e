// Package announce holds the tests of agents that announce addresses themselves: real agents with the shipped rights on
// servers with real VLANs, on which every failure is made for real.
package announce
