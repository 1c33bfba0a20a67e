package controlplane

// IsRoutable is isRoutable, for tests.
var IsRoutable = isRoutable
