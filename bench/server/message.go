package server

import (
	"encoding/json"
	"strings"
)

// serverMessage is what a server says in an error body: the message of the three usual
// JSON shapes, else the text itself; bounded and printable, "" when it says nothing.
func serverMessage(body []byte) string {
	const limit = 500
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	text := string(body)
	if json.Unmarshal(body, &said) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(said.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case said.Message != "":
			text = said.Message
		case json.Unmarshal(said.Error, &text) == nil, json.Unmarshal(said.Detail, &text) == nil:
		case len(said.Detail) > 0:
			text = string(said.Detail)
		}
	}
	return strings.TrimSpace(printable(strings.TrimSpace(text), limit))
}
