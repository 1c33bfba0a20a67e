// Package privilege runs the shipped agent with the rights that it is shipped with, and no more.
package privilege
