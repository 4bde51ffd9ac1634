package flight_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"hsx/capture/receive"
	"hsx/format"
	"hsx/format/safetensors"
	"hsx/shard"
)

// table builds one batch of arbitrary columns.
func table(tb testing.TB, rows int, fields []arrow.Field, json string) arrow.Record {
	tb.Helper()
	sc := arrow.NewSchema(fields, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, sc, strings.NewReader(json))
	if err != nil {
		tb.Fatal(err)
	}
	if rec.NumRows() != int64(rows) {
		tb.Fatalf("table has %d rows, want %d", rec.NumRows(), rows)
	}
	return rec
}

func field(name string, typ arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: true}
}

func text() arrow.DataType { return arrow.BinaryTypes.String }

func list(elem arrow.DataType) arrow.DataType { return arrow.ListOf(elem) }

func state(elem arrow.DataType) arrow.DataType { return list(arrow.FixedSizeListOf(2, elem)) }

func int32s() arrow.DataType { return list(arrow.PrimitiveTypes.Int32) }

// small is what a client of its own may send: no source, no mask, no digest.
func small() []arrow.Field {
	return []arrow.Field{field("id", text()), field("input_ids", int32s()), field("layer_2", state(arrow.PrimitiveTypes.Float32))}
}

// TestOneBadSample sends batches in which single samples are bad: the others are taken.
func TestOneBadSample(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{})
	c := s.dial(t)
	good := `{"id": "a", "input_ids": [1, 2], "layer_2": [[1, 2], [3, 4]]}`
	fields := append(small(), field("source", text()), field("loss_mask", list(arrow.PrimitiveTypes.Uint8)))
	first := table(t, 1, fields, "["+good+"]")
	mixed := table(t, 9, fields, `[`+good+`,
		{"id": "b", "input_ids": [1], "layer_2": [[1, 2]], "source": "run/7", "loss_mask": [1]},
		{"id": "a", "input_ids": [1, 3], "layer_2": [[1, 2], [3, 4]]},
		{"id": "short", "input_ids": [1, 3], "layer_2": [[1, 2]]},
		{"id": "ids", "layer_2": [[1, 2]]},
		{"id": "state", "input_ids": [1]},
		{"id": "mask", "input_ids": [1], "layer_2": [[1, 2]], "loss_mask": [1, 1]},
		{"input_ids": [1], "layer_2": [[1, 2]]},
		{"id": "b", "input_ids": [1], "layer_2": [[1, 2]], "loss_mask": [1]}]`)
	got, err := put(t.Context(), c, messages(t, []arrow.Record{first, mixed}))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ outcome, reason string }{
		{"created", ""}, {"exists", ""}, {"created", ""}, {"conflict", "other content"}, {"rejected", "1 rows for 2 tokens"},
		{"rejected", "input_ids is null"}, {"rejected", "layer_2 is null"}, {"rejected", "loss_mask"}, {"rejected", ""}, {"exists", ""},
	}
	i := 0
	for n, r := range got {
		if r.Batch != n {
			t.Errorf("batch %d is numbered %d", n, r.Batch)
		}
		for _, o := range r.Samples {
			if w := want[i]; o.Outcome != w.outcome || !strings.Contains(o.Reason, w.reason) {
				t.Errorf("sample %d is %+v, want %s with %q", i, o, w.outcome, w.reason)
			}
			i++
		}
	}
	if i != len(want) {
		t.Errorf("got %d outcomes, want %d", i, len(want))
	}
	// The numbers of the receiver are those of all ways in.
	if st := s.r.Status(); st.Samples != 2 || st.Known != 2 || st.Rejected != 6 || st.Receiving != 0 || st.SpoolBytes != 0 {
		t.Errorf("status is %+v, want 2 samples, 2 known, 6 rejected and nothing on its way", st)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if got := s.stored(t); len(got) != 2 || got["a"].Input.Path != "flight:a" || got["b"].Input.Path != "flight:run/7" {
		t.Errorf("dataset holds %v, want a and b with their sources", got)
	}
	if lines := s.rejected(t); strings.Count(lines, "\n") != 6 || !strings.Contains(lines, `"flight:short"`) || !strings.Contains(lines, `"flight:row 7 of a batch"`) {
		t.Errorf("rejected.jsonl is\n%s, want a line for each sample that was refused", lines)
	}
}

// TestDigest sends the digest of other states.
func TestDigest(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{})
	msgs := messages(t, records(t, samples(0, 1, 5, 64, format.Float16)))
	body := msgs[1].DataBody
	body[len(body)-1-64] ^= 1 // in the last 16 bytes, or the padding behind
	digestAt := bytes.LastIndexFunc(body, func(r rune) bool { return r != 0 })
	body[digestAt] ^= 1
	got, err := put(t.Context(), s.dial(t), msgs)
	if err != nil || len(got) != 1 || got[0].Samples[0].Outcome != "rejected" || !strings.Contains(got[0].Samples[0].Reason, "digest") {
		t.Errorf("got %v, error %v; want it rejected for its digest", got, err)
	}
}

// TestNonFinite refuses infinities and NaNs as over HTTP.
func TestNonFinite(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		s := start(t, receive.Options{AllowNonFinite: allow})
		all := samples(0, 1, 5, 8, format.Float32)
		copy(all[0].Hidden[1].Rows.Row(3)[4:], []byte{0, 0, 0xc0, 0x7f})
		got, err := put(t.Context(), s.dial(t), messages(t, records(t, all)))
		if err != nil {
			t.Fatal(err)
		}
		want := "rejected layer_2 has a value that is not finite at token 3, channel 1"
		if allow {
			want = "created "
		}
		if o := got[0].Samples[0]; o.Outcome+" "+o.Reason != want {
			t.Errorf("got %s %s, want %s", o.Outcome, o.Reason, want)
		}
	}
}

// safe is sample n as an HTTP client sends it.
func safe(tb testing.TB, s *format.Sample) io.Reader {
	tb.Helper()
	ids := make([]byte, 0, 4*len(s.Tokens))
	for _, t := range s.Tokens {
		ids = append(ids, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
	}
	n := int64(len(s.Tokens))
	ts := []*format.Tensor{{Name: "input_ids", DType: format.Int32, Shape: []int64{n}, Data: ids}}
	if s.LossMask != nil {
		ts = append(ts, &format.Tensor{Name: "loss_mask", DType: format.Uint8, Shape: []int64{n}, Data: s.LossMask})
	}
	for _, h := range s.Hidden {
		ts = append(ts, &format.Tensor{Name: h.State.Column(), DType: h.State.DType, Shape: []int64{n, int64(h.Rows.Width)}, Data: h.Rows.Data})
	}
	var b bytes.Buffer
	if err := safetensors.Encode(&b, ts, map[string]string{"hsx.id": s.ID, "hsx.norm": "post"}); err != nil {
		tb.Fatal(err)
	}
	return &b
}

func (s *server) post(id string, body io.Reader) (int, error) {
	res, err := http.Post(s.http+"/v1/samples/"+url.PathEscape(id), "application/octet-stream", body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // the code is all
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// TestClients has 64 clients send the same samples in different orders and batches, some
// of them over HTTP: each is taken once.
func TestClients(t *testing.T) {
	t.Parallel()
	const clients, count = 64, 12
	s := start(t, receive.Options{})
	all := samples(0, count, 5, 16, format.BFloat16)
	msgs := make([][]*flight.FlightData, count)
	for i := range all {
		msgs[i] = messages(t, records(t, all[i:i+1]))
	}
	var mu sync.Mutex
	words := map[string]int{}
	add := func(word string) {
		mu.Lock()
		defer mu.Unlock()
		words[word]++
	}
	var wg sync.WaitGroup
	for n := range clients {
		c := s.dial(t)
		order := rand.New(rand.NewPCG(uint64(n), 0)).Perm(count)
		wg.Go(func() {
			if n%8 == 0 {
				for _, i := range order {
					code, err := s.post(all[i].ID, safe(t, all[i]))
					if err != nil {
						t.Errorf("client %d: %v", n, err)
					}
					add(map[int]string{201: "created", 200: "exists"}[code])
				}
				return
			}
			stream := msgs[0][:1:1]
			for _, i := range order {
				stream = append(stream, msgs[i][1])
			}
			got, err := put(context.Background(), c, stream)
			if err != nil {
				t.Errorf("client %d: %v", n, err)
			}
			for _, word := range outcomes(got) {
				add(word)
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"created": count, "exists": (clients - 1) * count}, words); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	got := s.stored(t)
	for i := range count {
		if got[name(i)] == nil {
			t.Errorf("sample %d is not there", i)
		}
	}
	if len(got) != count {
		t.Errorf("dataset has %d samples, want %d", len(got), count)
	}
}

// TestEmpty sends what holds nothing: it is well formed.
func TestEmpty(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{})
	c := s.dial(t)
	empty := table(t, 0, small(), "[]")
	for name, c2 := range map[string]struct {
		msgs []*flight.FlightData
		want int
	}{
		"no message":      {nil, 0},
		"schema alone":    {messages(t, []arrow.Record{empty})[:1], 0},
		"no rows":         {messages(t, []arrow.Record{empty}), 1},
		"metadata alone":  {[]*flight.FlightData{{AppMetadata: []byte("x")}}, 0},
		"metadata behind": {append(messages(t, []arrow.Record{empty}), &flight.FlightData{AppMetadata: []byte("x")}), 1},
	} {
		got, err := put(t.Context(), c, c2.msgs)
		if err != nil || len(got) != c2.want {
			t.Errorf("%s: got %v, error %v; want %d results", name, got, err, c2.want)
		}
		if len(got) > 0 && fmt.Sprint(got[0].Samples) != "[]" {
			t.Errorf("%s: got %v, want no samples", name, got)
		}
	}
}

// TestFacts takes the target from the schema's metadata, as from that of the hook's files.
func TestFacts(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{})
	plain := table(t, 1, small(), `[{"id": "a", "input_ids": [1], "layer_2": [[1, 2]]}]`)
	md := arrow.NewMetadata([]string{"hsx.target", "hsx.target_layers", "hsx.id", "other"}, []string{"m", "4", "b", "x"})
	told := array.NewRecord(arrow.NewSchema(small(), &md), plain.Columns(), 1)
	got, err := put(t.Context(), s.dial(t), messages(t, []arrow.Record{told}))
	if err != nil || len(got) != 1 || got[0].Samples[0].ID != "a" || got[0].Samples[0].Outcome != "created" {
		t.Fatalf("got %v, error %v; want a created", got, err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if target := ds.Manifest().Target; target.Name != "m" || target.Layers != 4 {
		t.Errorf("target is %+v, want m of 4 layers", target)
	}
}
