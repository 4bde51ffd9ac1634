package simserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// output writes one answer, as a stream of server-sent events or as one document.
type output struct {
	w      http.ResponseWriter
	faults Faults
	stream bool
	begun  bool
	padded bool
	buf    bytes.Buffer
}

func newOutput(w http.ResponseWriter, s *Server, stream bool) *output {
	return &output{w: w, faults: s.opt.Faults, stream: stream && !s.opt.Faults.NoStream}
}

// events adds events to what the next flush sends.
func (o *output) events(events []any) {
	if !o.stream {
		return
	}
	for _, e := range events {
		o.add(encode(e))
	}
}

// tokens is [output.events] for events that carry tokens.
func (o *output) tokens(events []any) {
	if !o.stream {
		return
	}
	for _, e := range events {
		data := encode(e)
		if n := o.faults.BigLine; n > 0 && !o.padded {
			o.padded = true
			data = append(data[:len(data)-1], `,"padding":"`+strings.Repeat("x", n)+`"}`...)
		}
		o.add(data)
	}
}

func (o *output) add(data []byte) {
	if o.faults.KeepAlive {
		o.ping()
	}
	o.buf.WriteString("data: ")
	o.buf.Write(data)
	o.buf.WriteString("\n\n")
}

// ping adds a comment.
func (o *output) ping() {
	if o.stream {
		o.buf.WriteString(": ping\n\n")
	}
}

// flush sends what was added.
func (o *output) flush() error {
	if o.buf.Len() == 0 {
		return nil
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	_, err := o.w.Write(o.buf.Bytes())
	o.buf.Reset()
	if err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}

// end sends what follows the last token, or the whole document. The client may have
// left by then: there is nobody to tell.
func (o *output) end(x *exchange) {
	if !o.stream {
		writeJSON(o.w, http.StatusOK, x.s.dialect.whole(x))
		return
	}
	o.events(x.s.dialect.end(x))
	if !o.faults.NoDone {
		o.add([]byte("[DONE]"))
	}
	_ = o.flush()
}

// fail ends the answer with an error: an event, once the stream has begun.
func (o *output) fail(s *Server, r refusal) {
	if !o.stream {
		s.refuse(o.w, r)
		return
	}
	o.events([]any{s.dialect.refuse(s, r)})
	_ = o.flush() // as in end
}

// refusal is an answer with an error status.
type refusal struct {
	status  int
	kind    string
	param   string
	message string
}

func (s *Server) refuse(w http.ResponseWriter, r refusal) {
	writeJSON(w, r.status, s.dialect.refuse(s, r))
}

// writeJSON answers with a document. A client that has left is not told.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v))
}

// encode is JSON as the engines write it: without escapes for HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("simserver: " + err.Error()) // a bug: the documents are this package's own
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
