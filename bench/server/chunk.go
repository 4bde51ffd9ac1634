package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// piece is one event of an answer, or a whole answer, in no dialect.
type piece struct {
	choices   bool // has one at least, perhaps without text
	text      string
	reasoning string
	finish    finish
	usage     usage
	failure   string // the server's own words
	claims    claims
}

// usage is what the server counted.
type usage struct {
	known                                        bool // completion is
	prompt, completion, total, cached, reasoning int
}

// finish is a finish_reason: a string on the OpenAI routes, an object on SGLang's.
type finish struct {
	reason  string
	message string
}

// UnmarshalJSON takes both forms, and null.
func (f *finish) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, &f.reason)
	}
	var object struct{ Type, Message string }
	err := json.Unmarshal(data, &object)
	f.reason, f.message = object.Type, object.Message
	return err
}

// raw is JSON to be looked at later; null is nothing.
type raw []byte

// rawOf is a copy.
func rawOf(v []byte) raw {
	if isNull(v) {
		return nil
	}
	return bytes.Clone(v)
}

// UnmarshalJSON keeps a copy.
func (r *raw) UnmarshalJSON(v []byte) error {
	*r = rawOf(v)
	return nil
}

// misfitError is a member of an unexpected type. The rest of its event is of use.
type misfitError struct{ name, kind string }

func (e *misfitError) Error() string { return fmt.Sprintf("%q is of type %s", e.name, e.kind) }

// misfit makes one of what encoding/json calls so.
func misfit(err error) error {
	var shape *json.UnmarshalTypeError
	if !errors.As(err, &shape) {
		return err
	}
	return &misfitError{cmp.Or(shape.Field, "all of it"), shape.Value}
}

// decodeChunk reads an event of an OpenAI route, or a whole answer.
func decodeChunk(data []byte, p *piece) error {
	r := chunkReader{p: p}
	bare := "" // the message of an error without a cover
	r.object("all of it", data, func(name, v []byte) {
		switch string(name) {
		case "choices":
			if !isNull(v) && !elements(v, r.choice) {
				r.misfit("choices", v)
			}
		case "usage":
			r.object("usage", v, r.usage)
		case "metrics": // vLLM
			r.keep("metrics", v, "speculative_decoding", &p.claims.vllm)
		case "sglext": // SGLang
			r.keep("sglext", v, "spec_tokens_details", &p.claims.sglext)
		case "timings": // llama.cpp
			p.claims.timings = rawOf(v)
		case "message":
			bare = r.text("message", v)
		case "error":
			if !isNull(v) {
				p.failure = cmp.Or(serverMessage(data), "no reason given")
			}
		}
	})
	if p.failure == "" && !p.choices && !p.usage.known {
		p.failure = printable(bare, 500)
	}
	return r.err
}

// chunkReader fills a piece from the parts of an event. A part of another type than it
// should be is left out.
type chunkReader struct {
	p   *piece
	err error // the first
}

func (r *chunkReader) choice(v []byte) {
	r.p.choices = true
	r.object("choices", v, func(name, v []byte) {
		switch string(name) {
		case "delta", "message":
			r.message(v)
		case "text":
			r.p.text += r.text("text", v)
		case "finish_reason":
			if !isNull(v) {
				r.note(r.p.finish.UnmarshalJSON(v))
			}
		case "meta_info": // SGLang, some versions
			r.p.claims.meta = rawOf(v)
		case "avg_decoded_tokens_per_iter": // TensorRT-LLM
			r.note(json.Unmarshal(v, &r.p.claims.perIter))
		}
	})
}

// message takes the delta of a chunk, or the message of an answer that is not streamed.
func (r *chunkReader) message(v []byte) {
	var reasoning string // of the newer name in vLLM; some versions send both
	before := len(r.p.reasoning)
	r.object("delta", v, func(name, v []byte) {
		switch string(name) {
		case "content":
			r.p.text += r.text("content", v)
		case "reasoning_content":
			r.p.reasoning += r.text("reasoning_content", v)
		case "reasoning":
			reasoning = r.text("reasoning", v)
		case "tool_calls":
			var calls []struct {
				Function struct{ Name, Arguments string }
			}
			r.note(json.Unmarshal(v, &calls))
			for _, call := range calls {
				r.p.text += call.Function.Name + call.Function.Arguments
			}
		}
	})
	if len(r.p.reasoning) == before {
		r.p.reasoning += reasoning
	}
}

// usage takes a member of usage, or of the details in it.
func (r *chunkReader) usage(name, v []byte) {
	u := &r.p.usage
	var to *int
	switch string(name) {
	case "prompt_tokens":
		to = &u.prompt
	case "completion_tokens":
		to = &u.completion
	case "total_tokens":
		to = &u.total
	case "cached_tokens":
		to = &u.cached
	case "reasoning_tokens": // SGLang has it outside of the details
		to = &u.reasoning
	case "prompt_tokens_details", "completion_tokens_details":
		r.object(string(name), v, r.usage)
	}
	if to == nil || isNull(v) {
		return
	}
	n, err := strconv.Atoi(string(v))
	if err != nil {
		r.misfit(string(name), v)
		return
	}
	if to == &u.reasoning {
		n = max(n, *to) // one of two places may have a 0 of no meaning
	}
	*to = n
	u.known = u.known || to == &u.completion
}

// keep takes one member of an object as it stands.
func (r *chunkReader) keep(object string, v []byte, member string, to *raw) {
	r.object(object, v, func(name, v []byte) {
		if string(name) == member {
			*to = rawOf(v)
		}
	})
}

// object visits the members of a value that has to be an object or null.
func (r *chunkReader) object(name string, v []byte, visit func(name, value []byte)) {
	if !isNull(v) && !members(v, visit) {
		r.misfit(name, v)
	}
}

func (r *chunkReader) text(name string, v []byte) string {
	s, ok := unquote(v)
	if !ok {
		r.misfit(name, v)
	}
	return s
}

// misfit notes a value of the wrong type, or one that is no JSON at all.
func (r *chunkReader) misfit(name string, v []byte) {
	err := json.Unmarshal(v, new(any))
	if err == nil {
		err = &misfitError{name, kind(v)}
	}
	r.note(err)
}

func (r *chunkReader) note(err error) {
	if r.err == nil {
		r.err = misfit(err)
	}
}
