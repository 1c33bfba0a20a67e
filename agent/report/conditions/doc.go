// Package conditions writes the agent's results to its Node: its own conditions and annotations, nothing else.
package conditions
