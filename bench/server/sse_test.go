package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readEvents reads a stream to its end.
func readEvents(r io.Reader) (data []string, broken bool, err error) {
	e := newEvents(r)
	for {
		d, err := e.next()
		if errors.Is(err, io.EOF) {
			return data, e.broken, nil
		}
		if err != nil {
			return data, e.broken, err
		}
		data = append(data, string(d))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		stream string
		want   []string
		broken bool
	}{
		"space":               {"data: a\n\ndata: b\n\n", []string{"a", "b"}, false},
		"no space":            {"data:a\n\n", []string{"a"}, false},
		"two spaces":          {"data:  a\n\n", []string{" a"}, false},
		"several lines":       {"data: a\ndata: b\ndata:\n\n", []string{"a\nb\n"}, false},
		"CRLF":                {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, false},
		"CR":                  {"data: a\r\rdata: b\r\r", []string{"a", "b"}, false},
		"mixed ends":          {"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", []string{"a", "b", "c"}, false},
		"comments":            {": ping\n\n:\ndata: a\n: pong\n\n", []string{"a"}, false},
		"other fields":        {"event: x\nid: 7\nretry: 10\ndata: a\n\nevent: none\n\n", []string{"a"}, false},
		"no colon":            {"data\n\nnothing\n\n", []string{""}, false},
		"byte order mark":     {"\ufeffdata: a\n\n", []string{"a"}, false},
		"mark in the middle":  {"data: a\n\n\ufeffdata: b\n\n", []string{"a"}, false},
		"colon in the data":   {"data: a: b\n\n", []string{"a: b"}, false},
		"error field":         {"error: {\"code\":500}\n\n", []string{`{"code":500}`}, false},
		"blank lines":         {"\n\n\ndata: a\n\n\n\n", []string{"a"}, false},
		"line of a MiB":       {"data: " + long + "\n\n", []string{long}, false},
		"no blank line":       {"data: a\n\ndata: b\n", []string{"a", "b"}, true},
		"no end of line":      {"data: a\n\ndata: b", []string{"a", "b"}, true},
		"ends in a comment":   {"data: a\n\n: ping", []string{"a"}, false},
		"ends in a name":      {"data: a\n\ndat", []string{"a"}, false},
		"nothing":             {"", nil, false},
		"comment after data":  {"data: a\n: ping", []string{"a"}, true},
		"empty data in front": {"data:\ndata: b\n\n", []string{"\nb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readers := map[string]io.Reader{"at once": strings.NewReader(tc.stream), "end with the last": iotest.DataErrReader(strings.NewReader(tc.stream))}
			if len(tc.stream) < 1000 {
				readers["byte by byte"] = iotest.OneByteReader(strings.NewReader(tc.stream))
			}
			for way, r := range readers {
				got, broken, err := readEvents(r)
				if err != nil || broken != tc.broken {
					t.Errorf("%s: got broken %v, error %v, want %v and none", way, broken, err, tc.broken)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", way, diff)
				}
			}
		})
	}
}

// A recorded stream gives the same events wherever it is cut into two reads.
func TestEventsSplitAnywhere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/streams/vllm-eagle3-chat-stream-usage.sse")
	if err != nil {
		t.Fatal(err)
	}
	_, stream, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	if len(stream) == 0 {
		_, stream, _ = bytes.Cut(text, []byte("\n\n"))
	}
	want, _, err := readEvents(bytes.NewReader(stream))
	if err != nil || len(want) != 16 {
		t.Fatalf("got %d events, error %v, want 16", len(want), err)
	}
	for at := range stream {
		got, broken, err := readEvents(io.MultiReader(bytes.NewReader(stream[:at]), bytes.NewReader(stream[at:])))
		if err != nil || broken || !slices.Equal(got, want) {
			t.Fatalf("split at byte %d: got %d events, broken %v, error %v, want the same %d", at, len(got), broken, err, len(want))
		}
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestEventsBounded(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]io.Reader{
		"one line":   io.MultiReader(strings.NewReader("data: "), endless{}),
		"many lines": &repeated{line: "data: " + strings.Repeat("x", 1<<16) + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, _, err := readEvents(r)
			if err == nil || err.Error() != "event is longer than 67108864 bytes" || data != nil {
				t.Errorf("got %d events, error %v, want the bound's", len(data), err)
			}
		})
	}
}

// repeated is the same line for ever.
type repeated struct {
	line string
	rest string
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest = r.line
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// FuzzSSE holds the reader to itself under other cuts, and to a plain reading of the
// standard on the whole text.
func FuzzSSE(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "data:a\r\n\r\n", ": ping\n\ndata: a\rdata: b\r\r", "\ufeffdata: x\n\n", "error: {}\n\ndata", "data: a\n\ndata: [DONE]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, _, err := readEvents(bytes.NewReader(stream))
		if err != nil {
			t.Fatalf("got error %v, want none", err)
		}
		if byByte, _, _ := readEvents(iotest.OneByteReader(bytes.NewReader(stream))); !slices.Equal(got, byByte) {
			t.Errorf("got %q at once, %q byte by byte", got, byByte)
		}
		if want := plainEvents(string(stream)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func plainEvents(stream string) []string {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var all []string
	var event []string
	for _, line := range append(strings.Split(stream, "\n"), "") {
		if line == "" && event != nil {
			all = append(all, strings.Join(event, "\n"))
			event = nil
		}
		name, value, _ := strings.Cut(line, ":")
		if name == "data" || name == "error" {
			event = append(event, strings.TrimPrefix(value, " "))
		}
	}
	return all
}
