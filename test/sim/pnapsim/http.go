package pnapsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// object is a JSON object of an answer.
type object = map[string]any

// reply is what an operation answers.
type reply struct {
	status int
	body   any // encoded as JSON; nil means an empty body
	header http.Header
}

// call is one request to an API, past authentication and schema.
type call struct {
	op      *operation
	client  *client
	account *account
	params  map[string]string
	query   url.Values
	raw     []byte
	force   bool
	outcome *Fault // how what it starts ends, where a fault sets it
	twice   bool   // the second delivery of one request
}

// maxBody bounds a request's body.
const maxBody = 1 << 20

// delivery is an answer with what happens to it on its way.
type delivery struct {
	entry *Entry
	reply reply
	raw   []byte // the encoded body
	fault *Fault
	until time.Time // when the answer goes out, in model time
}

// Handler serves the APIs, the token endpoint and the control paths under /_fake/.
func (s *Sim) Handler() http.Handler {
	control := s.control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/_fake/") {
			control.ServeHTTP(w, r)
			return
		}
		s.serve(w, r)
	})
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, object{"message": "The request body cannot be read."})
		return
	}
	d := s.process(r, raw)
	delivered := s.deliver(w, r, d)
	s.finish(d, delivered)
}

// deliver writes the answer as the fault allows and reports whether the client got it.
func (s *Sim) deliver(w http.ResponseWriter, r *http.Request, d *delivery) bool {
	if s.clock.Wait(r.Context(), d.until) != nil {
		return false
	}
	if d.fault != nil {
		switch d.fault.Action {
		case FaultHang:
			<-r.Context().Done()
			return false
		case FaultReset, FaultLost:
			reset(w)
			return false
		}
	}
	if r.Context().Err() != nil {
		return false
	}
	for name, values := range d.reply.header {
		w.Header()[name] = values
	}
	if d.raw != nil && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(d.reply.status)
	_, err := w.Write(d.raw)
	return err == nil
}

// finish records that a client never got its answer.
func (s *Sim) finish(d *delivery, delivered bool) {
	leave := s.enter()
	if !delivered {
		d.entry.Lost = true
		s.judgeLost(d.entry)
	}
	entry := *d.entry
	leave()
	if s.cfg.OnEntry != nil {
		s.cfg.OnEntry(entry)
	}
}

func messageOf(body any) string {
	if o, ok := body.(object); ok {
		if message, ok := o["message"].(string); ok {
			return message
		}
	}
	return ""
}

// refuse is an error answer (schema Error of all the documents).
func refuse(status int, message string, faults ...string) reply {
	if faults == nil {
		faults = []string{}
	}
	return reply{status: status, body: object{"message": message, "validationErrors": faults}}
}

func forbidden() reply {
	return refuse(http.StatusForbidden,
		"The request failed since this resource cannot be accessed by the provided credentials.")
}

// missing is the answer for a resource that is not there or belongs to another account.
func (s *Sim) missing() reply {
	if s.switches.Missing == http.StatusNotFound {
		return refuse(http.StatusNotFound, "The request failed since the resource could not been found.")
	}
	return forbidden()
}

func invalid(faults ...string) reply {
	return refuse(http.StatusBadRequest,
		"The request failed due to wrong data. Please check the provided parameters and try again.", faults...)
}

func conflict(why string) reply {
	return refuse(http.StatusConflict, "The resource is in an incompatible state.", why)
}

// decode reads a request's body.
func decode[T any](c *call) (T, error) {
	var value T
	if err := json.NewDecoder(bytes.NewReader(c.raw)).Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return value, fmt.Errorf("body: %w", err)
	}
	return value, nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		klog.Background().V(4).Info("Answer could not be written", "err", err)
	}
}
