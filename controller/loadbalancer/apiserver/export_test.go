package apiserver

// IsRoutable is isRoutable, for tests.
var IsRoutable = isRoutable
