package server

import (
	"encoding/json"
	"testing"
)

// FuzzScan holds the scanner to encoding/json: of a valid object it finds the same
// members, of a valid array the same elements, and of text the same string.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `"a\"b\\"`, ` { "a" : 1 , "b":[{"c":"}"},2.5e-3] } `, `{"a":{"b":"\u00e9\\"},"a":null}`, "[1,\n2,[3],\"]\"]", `{"a" 1}`, `{"a":1,}`, `[1 2]`, `{"a":1}}`, "\"\xff\"", `{"":true}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		found := map[string]json.RawMessage{}
		ok := members(data, func(name, v []byte) {
			key, isText := unquote(append(append([]byte{'"'}, name...), '"'))
			if isText && len(v) > 0 {
				found[key] = v
			}
		})
		var list []json.RawMessage
		isList := elements(data, func(v []byte) { list = append(list, v) })
		if ok && isList {
			t.Errorf("%q is an object and an array", data)
		}
		if !json.Valid(data) {
			return
		}
		var wantMembers map[string]json.RawMessage
		if isObject := json.Unmarshal(data, &wantMembers) == nil && wantMembers != nil; ok != isObject {
			t.Fatalf("members(%q): got %v, want %v", data, ok, isObject)
		}
		for name, v := range wantMembers {
			if string(found[name]) != string(v) {
				t.Errorf("%q: got %q for %q, want %q", data, found[name], name, v)
			}
		}
		if len(found) != len(wantMembers) {
			t.Errorf("%q: got %d members, want %d", data, len(found), len(wantMembers))
		}
		var want []json.RawMessage
		if isArray := json.Unmarshal(data, &want) == nil && want != nil; isList != isArray || len(list) != len(want) {
			t.Fatalf("elements(%q): got %v and %d, want %v and %d", data, isList, len(list), isArray, len(want))
		}
		for i := range want {
			if string(list[i]) != string(want[i]) {
				t.Errorf("%q: got %q at %d, want %q", data, list[i], i, want[i])
			}
		}
		v, rest, whole := value(data)
		if !whole || len(rest) != 0 {
			t.Fatalf("value(%q): got %q, rest %q, want all of it", data, v, rest)
		}
		var wantText string
		isText := json.Unmarshal(data, &wantText) == nil
		if got, ok := unquote(v); ok != isText || got != wantText {
			t.Errorf("unquote(%q): got %q, %v, want %q, %v", data, got, ok, wantText, isText)
		}
	})
}
