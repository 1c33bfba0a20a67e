// Package metricsserver serves the agent's metrics and health over HTTP.
package metricsserver
