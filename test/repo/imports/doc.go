// Package imports defines which package may import which, as a test with reasons.
package imports
