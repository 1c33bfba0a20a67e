// Package docs holds the documentation against the code, as a test.
package docs
