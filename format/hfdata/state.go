package hfdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"hsx/format"
)

const stateFormat = "state.json"

// ParseState reads the names of the stream files from a dataset's state.json, in the
// order of their rows. Each is a plain name of a file beside state.json: one that
// would lead elsewhere is refused, and so is one that is listed twice, for its rows
// would be counted twice.
//
// Its error is a *[format.DecodeError].
func ParseState(data []byte) (files []string, err error) {
	refuse := func(kind error, offset int64, msg string, args ...any) error {
		return &format.DecodeError{Format: stateFormat, Offset: offset, Tensor: "_data_files", Kind: kind, Err: fmt.Errorf(msg, args...)}
	}
	var state struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		var syntax *json.SyntaxError
		var typ *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax) && strings.HasPrefix(syntax.Error(), "unexpected end"):
			return nil, refuse(format.ErrCorrupt, syntax.Offset, "file is truncated: its JSON does not end")
		case errors.As(err, &syntax):
			return nil, refuse(format.ErrCorrupt, syntax.Offset, "file is not JSON: %w", err)
		case errors.As(err, &typ):
			return nil, refuse(format.ErrUnsupported, typ.Offset, "_data_files holds a %s, want a list of {\"filename\": \"…\"}", typ.Value)
		}
		return nil, refuse(format.ErrCorrupt, -1, "file is not JSON: %w", err)
	}
	if len(state.Files) == 0 {
		return nil, refuse(format.ErrUnsupported, -1, "_data_files names no file, want the files of a dataset written by save_to_disk")
	}
	seen := make(map[string]bool, len(state.Files))
	files = make([]string, len(state.Files))
	for i, f := range state.Files {
		switch {
		case f.Name == "" || f.Name == "." || f.Name == ".." || strings.ContainsAny(f.Name, "/\\\x00"):
			return nil, refuse(format.ErrUnsupported, -1, "_data_files names %q, want a plain file name", clip([]byte(f.Name)))
		case seen[f.Name]:
			return nil, refuse(format.ErrCorrupt, -1, "_data_files names %q twice", clip([]byte(f.Name)))
		}
		seen[f.Name] = true
		files[i] = f.Name
	}
	return files, nil
}
