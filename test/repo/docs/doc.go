// Package docs compares the documentation with the code, as a test.
package docs
