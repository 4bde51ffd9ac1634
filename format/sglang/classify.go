package sglang

// Kind is what a JSON file is to this package.
type Kind uint8

// The kinds.
const (
	KindOther    Kind = iota
	KindResponse      // one for [DecodeResponses]
	KindRequest       // one for [DecodeRequest]
)

// String is "other", "response" or "request".
func (k Kind) String() string {
	switch k {
	case KindResponse:
		return "response"
	case KindRequest:
		return "request"
	}
	return "other"
}

// Classify tells answers from requests by their keys: an answer has meta_info, a
// request has input_ids or text, and sampling_params or return_hidden_states. It
// looks at the object, or at the first of a list, and neither decodes a value nor
// asks for valid JSON: a file that was cut is still of its kind, and so is the head
// of one as far as its keys go.
func Classify(data []byte) Kind {
	s := scanner{data: data}
	s.take('[')
	prompt, asked := false, false
	for key := range s.members() {
		switch key {
		case keyMeta:
			return KindResponse
		case keyInputIDs, "text":
			prompt = true
		case "sampling_params", "return_hidden_states":
			asked = true
		}
		s.skip()
	}
	if prompt && asked {
		return KindRequest
	}
	return KindOther
}
