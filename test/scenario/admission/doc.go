// Package admission asks a real API server what the shipped admission policies let through, and what they refuse.
package admission
