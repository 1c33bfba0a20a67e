// Package imports holds the rules of who may import whom, as a test with reasons.
package imports
