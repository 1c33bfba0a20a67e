package pnapsim

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// WrongAnswer lists how an answer differs from the documents. It is stricter than what the simulator does with each of
// its answers: a status or a property that they do not know is wrong, too. The operation is the ID that they give it.
func (s *Specs) WrongAnswer(r *http.Request, status int, raw []byte) (operation string, faults []string) {
	op, _, _ := route(r.Method, r.URL.Path)
	if op == nil {
		return "", []string{r.Method + " " + r.URL.Path + " is no operation of the simulator"}
	}
	_, _, spec := s.operation(op)
	if spec == nil {
		return "", []string{op.name() + " is not in the document"}
	}
	response := spec.Responses.Status(status)
	if response == nil {
		return spec.OperationID, []string{fmt.Sprintf("%s: the document lists no %d", op.name(), status)}
	}
	var body any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			return spec.OperationID, []string{op.name() + ": " + err.Error()}
		}
	}
	faults = s.checkResponse(op, status, body)
	if media := response.Value.Content.Get("application/json"); media != nil && media.Schema != nil {
		for _, name := range unknownProperties(media.Schema.Value, body) {
			faults = append(faults, fmt.Sprintf("%s: the document has no property %q", op.name(), name))
		}
	}
	return spec.OperationID, faults
}
