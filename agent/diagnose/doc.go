// Package diagnose prints what the checks found: the same findings as the Node's conditions, as text or JSON.
package diagnose
