package pnap

import (
	"net/http"
	"testing"
)

// TestWordsAreNoStatus: a client that searches for "Not Found" in the text of an error mistakes the page of a proxy, or
// the name of a host, for the API's answer that a server does not exist.
//
//proves:known-bugs/not-found-text
func TestWordsAreNoStatus(t *testing.T) {
	for name, api := range map[string]http.HandlerFunc{
		"502 page of a proxy":     raw(502, "text/html", "<h1>404 Not Found</h1>"),
		"200 page of a proxy":     raw(200, "text/html", "<h1>404 Not Found</h1>"),
		"200 with an error in it": raw(200, "application/json", `{"message":"Not Found","status":404}`),
		"400 in such words": raw(400, "application/json",
			`{"message":"server not found","validationErrors":["404 Not Found"]}`),
		"401 in such words": raw(401, "application/json", `{"message":"403 Forbidden"}`),
		"409 in such words": raw(409, "application/json", `{"message":"Not Found"}`),
		"429 in such words": raw(429, "text/plain", "404 Not Found"),
		"500 in the words of a missing": raw(500, "application/json",
			`{"message":"The request failed since this resource cannot be accessed by the provided credentials."}`),
		"503 in such words":               raw(503, "text/plain", "Not Found"),
		"connection reset":                drop(0, ""),
		"an answer that breaks off early": drop(200, `{"message":"Not Found"`),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := clientOf(t, newService(t, api)).Server(t.Context(), "not-found-404"); err == nil ||
				IsInaccessible(err) {
				t.Errorf("%v counts as the absence of the server", err)
			}
		})
	}
}
