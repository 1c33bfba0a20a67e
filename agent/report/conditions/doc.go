// Package conditions writes the agent's verdicts to its Node: its own conditions and annotations, nothing else.
package conditions
