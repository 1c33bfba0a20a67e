// Package monitoring holds the dashboard and the alert rules of deploy/monitoring against the metrics that controller
// and agent expose, and tries every alert on made-up series.
package monitoring
