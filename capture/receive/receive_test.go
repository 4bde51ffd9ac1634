package receive_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/capture/receive"
	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
)

// TestAnswers sends one body after the other to one receiver.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{MaxBody: 1 << 20})
	change := func(id string, how func(ts []*format.Tensor) []*format.Tensor) []byte {
		return encode(t, id, how(tensors(1, 5, 4)))
	}
	poison := func(bits uint32) []byte {
		return change("bad", func(ts []*format.Tensor) []*format.Tensor {
			binary.LittleEndian.PutUint32(ts[2].Data[4*13:], bits)
			return ts
		})
	}
	good := small(t, "a/b c%2F", 1)
	for _, c := range []struct {
		name, id string
		body     []byte
		code     int
		text     string
	}{
		{"first", "a/b c%2F", good, 201, "durable"},
		{"again", "a/b c%2F", good, 200, "durable"},
		{"other content", "a/b c%2F", small(t, "a/b c%2F", 2), 409, "other content"},
		{"other mask", "a/b c%2F", change("a/b c%2F", func(ts []*format.Tensor) []*format.Tensor { ts[4].Data[0] = 0; return ts }), 409, "other content"},
		{"dots", "..", small(t, "..", 3), 201, ""},
		{"dot", ".", small(t, ".", 4), 201, ""},
		{"not latin", "日本", small(t, "日本", 4), 201, ""},
		{"id differs", "x", small(t, "y", 1), 422, `body holds sample \"y\", the path names \"x\"`},
		{"NaN", "bad", poison(math.Float32bits(float32(math.NaN()))), 422, "layer_30 has a value that is not finite at token 3, channel 1"},
		{"infinity", "bad", poison(math.Float32bits(float32(math.Inf(-1)))), 422, "token 3, channel 1"},
		{"a layer less", "bad", change("bad", func(ts []*format.Tensor) []*format.Tensor { return append(ts[:1:1], ts[2:]...) }), 422, "one dataset holds one capture"},
		{"wider", "bad", encode(t, "bad", tensors(1, 5, 8)), 422, "hidden size is 8, want 4"},
		{"no ids", "bad", change("bad", func(ts []*format.Tensor) []*format.Tensor { return ts[1:] }), 422, "input_ids"},
		{"no tokens", "bad", encode(t, "bad", tensors(1, 0, 4)), 422, ""},
		{"empty", "bad", nil, 422, "file is empty"},
		{"cut", "bad", good[:len(good)-3], 422, "truncated"},
		{"pickle", "bad", []byte("\x80\x02}q\x00."), 422, "error"},
		{"huge header", "bad", binary.LittleEndian.AppendUint64(nil, 1<<40), 422, "header length"},
		{"large header", "bad", append(binary.LittleEndian.AppendUint64(nil, 1000000), make([]byte, 1000)...), 422, "truncated"},
		{"too big", "bad", make([]byte, 1<<20+1), 413, "at most 1048576 bytes"},
		{"no id", "", good, 400, "id is not"},
		{"long id", strings.Repeat("i", 5000), good, 400, "id is not"},
	} {
		code, text := s.post(t, c.id, bytes.NewReader(c.body))
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: got %d %s, want %d with %q", c.name, code, text, c.code, c.text)
		}
		if code >= 400 && !json.Valid([]byte(text)) {
			t.Errorf("%s: got %q, want JSON", c.name, text)
		}
	}
	st := s.r.Status()
	if st.Rows != 4 || st.Samples != 4 || st.Known != 1 || st.SpoolBytes != 0 || st.Receiving != 0 {
		t.Errorf("status is %+v, want 4 rows and samples, 1 known and nothing on its way", st)
	}
	if _, text := get(t, s.url+"/metrics"); !strings.Contains(text, "hsx_serve_samples_total 4\n") || !strings.Contains(text, "hsx_serve_commit_seconds_count") {
		t.Errorf("metrics are\n%s, want 4 samples and commit times", text)
	}
	if code, text := get(t, s.url+"/v1/status"); code != 200 || !strings.Contains(text, `"rows":4`) {
		t.Errorf("status: got %d %s, want 4 rows", code, text)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"a/b c%2F": 1, "..": 1, ".": 1, "日本": 1}
	if diff := cmp.Diff(want, s.rows(t)); diff != "" {
		t.Errorf("dataset (-want +got):\n%s", diff)
	}
	lines, err := os.ReadFile(filepath.Join(s.dir, "rejected.jsonl"))
	if n := bytes.Count(lines, []byte("\n")); err != nil || n < 10 {
		t.Errorf("rejected.jsonl has %d lines (error %v), want those of 409, 413 and 422:\n%s", n, err, lines)
	}
}

// TestRetry sends the same bad body often: it makes one line.
func TestRetry(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{})
	for range 5 {
		s.post(t, "x", strings.NewReader("no safetensors"))
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if lines, err := os.ReadFile(filepath.Join(s.dir, "rejected.jsonl")); err != nil || bytes.Count(lines, []byte("\n")) != 1 {
		t.Errorf("rejected.jsonl is %q (error %v), want one line", lines, err)
	}
}

// TestAcrossRestart compares with what an earlier receiver took, in several shards.
func TestAcrossRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for run, want := range []int{201, 200} {
		s := start(t, dir, receive.Options{})
		for i := range 6 {
			if code, text := s.post(t, name(i), bytes.NewReader(small(t, name(i), i))); code != want {
				t.Errorf("run %d, sample %d: got %d %s, want %d", run, i, code, text, want)
			}
		}
		if code, text := s.post(t, name(3), bytes.NewReader(small(t, name(3), 4))); code != 409 {
			t.Errorf("run %d, other content: got %d %s, want 409", run, code, text)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.rows(t)); got != 6 {
			t.Errorf("run %d: dataset has %d rows, want 6", run, got)
		}
	}
}

// TestClients has 64 clients send the same samples in different orders, in known and
// in unknown length: each is taken once.
func TestClients(t *testing.T) {
	t.Parallel()
	const clients, samples = 64, 24
	s := start(t, t.TempDir(), receive.Options{})
	bodies := make([][]byte, samples)
	for i := range bodies {
		bodies[i] = small(t, name(i), i)
	}
	var mu sync.Mutex
	codes := map[int]int{}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for _, i := range rand.New(rand.NewPCG(uint64(c), 0)).Perm(samples) {
				var body io.Reader = bytes.NewReader(bodies[i])
				if c%2 == 0 {
					body = io.MultiReader(body) // chunked
				}
				code, text, err := s.try(name(i), body)
				if err != nil || code != 200 && code != 201 {
					t.Errorf("sample %d: got %d %s, error %v", i, code, text, err)
				}
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if codes[201] != samples {
		t.Errorf("codes are %v, want 201 %d times", codes, samples)
	}
	got := s.rows(t)
	for i := range samples {
		if got[name(i)] != 1 {
			t.Errorf("sample %d is there %d times, want once", i, got[name(i)])
		}
	}
	if len(got) != samples {
		t.Errorf("dataset has %d ids, want %d", len(got), samples)
	}
}

// TestTarget sends bodies that say of which target they are.
func TestTarget(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{Facts: producer.Facts{Target: format.Target{VocabSize: 100}}})
	for _, c := range []struct {
		id, key, value string
		code           int
		text           string
	}{
		{"a", "hsx.target_layers", "61", 201, ""},
		{"b", "hsx.target_layers", "60", 422, "target has layers 60, the dataset's has 61"},
		{"b", "hsx.vocab_size", "99", 422, "metadata says that the target has vocabulary 99, but its config (--target) says 100"},
		{"b", "hsx.hidden_size", "5", 422, "is 4 wide, want the target's hidden size 5"},
		{"b", "hsx.target", "org/model", 201, ""},
		{"c", "hsx.target", "org/other", 422, "the dataset's is \\\"org/model\\\""},
	} {
		body := encodeWith(t, tensors(1, 5, 4), map[string]string{"hsx.id": c.id, c.key: c.value})
		if code, text := s.post(t, c.id, bytes.NewReader(body)); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: got %d %s, want %d with %q", c.key, c.value, code, text, c.code, c.text)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ds.Manifest().Target, (format.Target{Name: "org/model", Layers: 61, VocabSize: 100}); got != want {
		t.Errorf("target is %+v, want %+v", got, want)
	}
}

func TestAllowNonFinite(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{AllowNonFinite: true})
	ts := tensors(1, 5, 4)
	binary.LittleEndian.PutUint32(ts[1].Data, math.Float32bits(float32(math.Inf(1))))
	body := encode(t, "x", ts)
	for _, want := range []int{201, 200} {
		if code, text := s.post(t, "x", bytes.NewReader(body)); code != want {
			t.Errorf("got %d %s, want %d", code, text, want)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{Token: "secret"})
	for name, c := range map[string]struct {
		header string
		want   int
	}{
		"none": {"", 401}, "wrong": {"Bearer secre", 401}, "basic": {"Basic secret", 401}, "right": {"Bearer secret", 200}, "lower case": {"bearer secret", 200},
	} {
		for _, path := range []string{"/v1/status", "/metrics"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", c.header)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close() // only the code counts
			if res.StatusCode != c.want {
				t.Errorf("%s, %s: got %d, want %d", name, path, res.StatusCode, c.want)
			}
		}
	}
	if code, _ := s.post(t, "x", bytes.NewReader(small(t, "x", 1))); code != 401 {
		t.Errorf("post without a token: got %d, want 401", code)
	}
	if code, _ := get(t, s.url+"/healthz"); code != 200 {
		t.Errorf("healthz: got %d, want 200", code)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "shards/000000.arrow")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a body without a token made a shard (error %v)", err)
	}
}

// TestSpoolUsedAgain sends a body into the file of a longer one: nothing of that is taken
// for its own, and what it lacks is missed.
func TestSpoolUsedAgain(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{})
	long := encode(t, "long", tensors(1, 3000, 64))
	if code, text := s.post(t, "long", bytes.NewReader(long)); code != 201 {
		t.Fatalf("long: got %d %s, want 201", code, text)
	}
	for _, chunked := range []bool{false, true} {
		var body io.Reader = bytes.NewReader(long[:len(long)/2])
		if chunked {
			body = io.MultiReader(body)
		}
		if code, text := s.post(t, "half", body); code != 422 || !strings.Contains(text, "truncated") {
			t.Errorf("first half of the long one: got %d %s, want 422 since it is truncated", code, text)
		}
	}
	for i := range 3 {
		if code, text := s.post(t, name(i), bytes.NewReader(encode(t, name(i), tensors(1+i, 5+i, 64)))); code != 201 {
			t.Errorf("short %d: got %d %s, want 201", i, code, text)
		}
		if code, text := s.post(t, name(i), bytes.NewReader(encode(t, name(i), tensors(1+i, 5+i, 64)))); code != 200 {
			t.Errorf("short %d again: got %d %s, want 200", i, code, text)
		}
	}
}

// TestLoneClient is answered without a wait for others, and the small shards that it
// leaves are joined.
func TestLoneClient(t *testing.T) {
	t.Parallel()
	const window, samples = 10 * time.Second, shard.DefaultSmallShards + 6
	s, begin := start(t, t.TempDir(), receive.Options{CommitWindow: window, Uncompacted: func(err error) { t.Error(err) }}), time.Now()
	for i := range samples {
		if code, text := s.post(t, name(i), bytes.NewReader(small(t, name(i), i))); code != 201 {
			t.Errorf("sample %d: got %d %s, want 201", i, code, text)
		}
		if got := s.r.Status().Commits; got != int64(i+1) {
			t.Errorf("%d commits after %d samples of one client", got, i+1)
		}
		if i == 4 && time.Since(begin) >= window {
			t.Errorf("5 samples took %s, as if one had waited for the window of %s", time.Since(begin), window)
		}
	}
	if code, text := s.post(t, name(3), bytes.NewReader(small(t, name(3), 3))); code != 200 {
		t.Errorf("sample 3 again, from a joined shard: got %d %s, want 200", code, text)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if m := ds.Manifest(); m.Rows != samples || len(m.Shards) > 10 {
		t.Errorf("%d samples lie in %d shards, want %d in 10 at most", m.Rows, len(m.Shards), samples)
	}
}
