// Package walk tests the assembled controller by random walks: Services and Nodes come and go, the phoenixNAP API
// fails, the portal's user interferes and the process dies after any call, in a time that passes only while all wait.
package walk
