//go:build !unix

package diagnose

import "os"

// terminal takes nothing for a terminal: the agent runs on Linux, and elsewhere its packages are only tested.
func terminal(*os.File) (columns int, is bool) { return 0, false }
