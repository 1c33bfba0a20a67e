// Package endpoint serves the agent's metrics and health over HTTP.
package endpoint
