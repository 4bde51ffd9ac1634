package capture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"hsx/format"
	"hsx/format/hfdata"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/safetensors"
	"hsx/format/sglang"
	"hsx/format/torch"
)

// content is what a file's bytes turned out to be.
type content struct {
	name      string // for people
	container producer.Container
	value     format.Value
	metadata  map[string]string // of a safetensors file
	answers   []sglang.Response // of an SGLang server, instead of a value
	notes     []string
	side      string
	ignored   string
}

// decode reads a file by its content. The name serves only to say what is odd, and,
// when the content is of no known kind, which codec should say why.
func decode(data []byte, path string) (*content, error) {
	how := compression(data)
	if how != "" {
		var err error
		if data, err = decompress(data, how); err != nil {
			return nil, err
		}
	}
	c, err := decodePlain(data, path)
	if err != nil {
		return nil, err
	}
	if how != "" {
		c.name += " in " + how
	} else if ext := filepath.Ext(path); ext == ".gz" || ext == ".zst" {
		c.notes = append(c.notes, fmt.Sprintf("name ends in %s, the content is a plain %s (content decides)", ext, c.name))
	}
	return c, nil
}

func decodePlain(data []byte, path string) (*content, error) {
	head := data[:min(len(data), 64)]
	// A safetensors file begins with the length of its header, which may have the bytes
	// of any short magic number.
	headed := len(head) > 8 && head[8] == '{'
	switch {
	case len(data) == 0:
		return nil, &format.DecodeError{Format: "file", Offset: 0, Kind: format.ErrCorrupt, Err: errors.New("file is empty (0 bytes)")}
	case isArrayArchive(data):
		return decodeArrayArchive(data)
	case torch.IsArchive(head):
		return decodeTorch(data)
	case !headed && len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return nil, torch.CheckBarePickle(data)
	case npy.IsFile(head):
		t, err := npy.Decode(data)
		if err != nil {
			return nil, err
		}
		t.Name = strings.TrimSuffix(filepath.Base(path), arraySuffix)
		rec := &format.Record{Fields: []format.Field{{Key: t.Name, Value: t}}}
		return &content{name: "npy array", container: producer.Arrays, value: rec}, nil
	case !headed && hfdata.IsStream(head):
		s, err := hfdata.Open(data)
		if err != nil {
			return nil, err
		}
		return &content{name: "Arrow stream", side: fmt.Sprintf("token columns of a Hugging Face dataset, %d rows", s.Len())}, nil
	case bytes.HasPrefix(head, []byte("ARROW1")):
		return nil, unsupported("Arrow file", "an Arrow IPC file is not a dump of any known producer (a dataset of hsx is read with inspect or merge)")
	case bytes.HasPrefix(head, []byte("TEMN")):
		return nil, unsupported("NMET", "Automodel's wire format is not read from files")
	case safetensors.IsFile(head, int64(len(data))):
		return decodeSafetensors(data)
	case isJSON(head):
		return decodeJSON(data, path)
	}
	return decodeByName(data, path)
}

// isArrayArchive tells an .npz from a torch archive, which is a zip too: by the name
// of the first member.
func isArrayArchive(data []byte) bool {
	const nameLen, name = 26, 30
	if !bytes.HasPrefix(data, []byte("PK\x03\x04")) || len(data) < name {
		return false
	}
	end := name + int(data[nameLen]) + int(data[nameLen+1])<<8
	return end <= len(data) && bytes.HasSuffix(data[name:end], []byte(arraySuffix))
}

func decodeArrayArchive(data []byte) (*content, error) {
	rec, err := npy.DecodeArchive(data)
	if err != nil {
		return nil, err
	}
	return &content{name: "npz archive", container: producer.Arrays, value: rec}, nil
}

func decodeTorch(data []byte) (*content, error) {
	a, err := torch.Decode(data, torch.Options{})
	if err != nil {
		return nil, err
	}
	return &content{name: "torch archive", container: producer.Torch, value: a.Value, notes: a.Notes}, nil
}

func decodeSafetensors(data []byte) (*content, error) {
	f, err := safetensors.Decode(data)
	if err != nil {
		return nil, err
	}
	return &content{name: "safetensors file", container: producer.Safetensors, value: f.Record, metadata: f.Metadata, notes: f.Notes}, nil
}

func isJSON(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	return len(head) > 0 && (head[0] == '{' || head[0] == '[')
}

// decodeJSON tells the kinds of JSON apart. Prompts as lines of JSON and files of
// settings may begin like JSON too: what is none is a fault only under a name that
// promises otherwise.
func decodeJSON(data []byte, path string) (*content, error) {
	c := &content{name: "JSON document", container: producer.JSON}
	switch sglang.Classify(data) {
	case sglang.KindResponse:
		var err error
		c.name = "SGLang answer"
		c.answers, err = sglang.DecodeResponses(data)
		return c, err
	case sglang.KindRequest:
		c.side = "request to an SGLang server"
		return c, nil
	}
	if len(data) <= maxSideBytes {
		if what, ok := producer.SideJSON(data); ok {
			c.side = what
			return c, nil
		}
	}
	c.ignored = "JSON document of no known kind"
	promised := looksLikeDump(path)
	if !json.Valid(data) {
		c.name, c.ignored = "file", "begins like JSON and is none"
		promised = promised || plainExt(path) == ".json"
	}
	if promised {
		return nil, jsonFault(data)
	}
	return c, nil
}

// jsonFault says what is wrong with JSON where a dump, or sound JSON, was promised.
func jsonFault(data []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	if err == nil {
		return unsupported("JSON document", "it is of no known kind, and no dump")
	}
	offset := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	return &format.DecodeError{Format: "JSON document", Offset: offset, Kind: format.ErrCorrupt, Err: err}
}

// decodeByName is for content of no known kind: under a name that promises a dump
// it is a fault, and the codec of the name can tell which.
func decodeByName(data []byte, path string) (*content, error) {
	if !looksLikeDump(path) {
		return &content{name: "file", ignored: fmt.Sprintf("content of no known kind (it begins with % x)", data[:min(len(data), 8)])}, nil
	}
	switch plainExt(path) {
	case ".safetensors":
		return decodeSafetensors(data)
	case arraySuffix:
		_, err := npy.Decode(data)
		return nil, err
	case ".npz":
		return decodeArrayArchive(data)
	case ".arrow":
		_, err := hfdata.Open(data)
		return nil, err
	}
	return decodeTorch(data)
}

func unsupported(what, why string) error {
	return &format.DecodeError{Format: what, Offset: 0, Kind: format.ErrUnsupported, Err: errors.New(why)}
}
