package sglang_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"hsx/format"
	"hsx/format/sglang"
	"hsx/internal/hsxtest"
)

func TestDecodeAllocates(t *testing.T) {
	for name, data := range map[string]string{
		"many members":  `{` + strings.Repeat(`"":0,`, 1<<16) + `"a":0}`,
		"many numbers":  `{"meta_info":{"hidden_states":[[` + strings.Repeat(`1,`, 1<<17) + `1]]}}`,
		"many rows":     `{"meta_info":{"hidden_states":[[1]` + strings.Repeat(`,[1]`, 1<<16) + `]}}`,
		"many answers":  `[` + strings.Repeat(`{"meta_info":{"hidden_states":[[1]]}},`, 1<<13) + `{}]`,
		"many brackets": strings.Repeat(`[`, 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			got := hsxtest.Allocated(func() { _, _ = sglang.DecodeResponses([]byte(data)) })
			if most := uint64(32 * len(data)); got > most {
				t.Errorf("DecodeResponses allocated %d bytes for %d, want at most %d", got, len(data), most)
			}
		})
	}
}

func FuzzDecodeResponses(f *testing.F) {
	for _, name := range []string{"cut.json", "nan_literal.json", "overflow.json", "strings.json", "ragged.json", "request.json"} {
		f.Add(hsxtest.Golden(f, name))
	}
	f.Add([]byte(`[{"output_ids":[1],"meta_info":{"id":"a\n","prompt_tokens":2,"completion_tokens":2,"hidden_states":[[[1,-0],[3e-9,4]],[5,6]]}}]`))
	f.Add([]byte(`{"meta_info":{"hidden_states":[[[[1.5],[2]],[3]]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rs []sglang.Response
		var err error
		got := hsxtest.Allocated(func() { rs, err = sglang.DecodeResponses(data) })
		if most := uint64(64*len(data) + 1<<16); got > most {
			t.Fatalf("DecodeResponses allocated %d bytes for %d (error %v), want at most %d", got, len(data), err, most)
		}
		kind := sglang.Classify(data)
		if _, err := sglang.DecodeRequest(data); err != nil {
			hsxtest.CheckDecodeError(t, err, len(data))
		}
		if err != nil {
			hsxtest.CheckDecodeError(t, err, len(data))
			return
		}
		if kind != sglang.KindResponse && data[0] == '{' {
			t.Fatalf("Classify = %v of what DecodeResponses reads", kind)
		}
		if !json.Valid(data) {
			t.Fatal("DecodeResponses reads what is not JSON")
		}
		for _, r := range rs {
			checkStates(t, r)
		}
	})
}

// checkStates checks a response and that writing its rows anew reads as the same.
func checkStates(t *testing.T, r sglang.Response) {
	t.Helper()
	s := r.States
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if s.DType != format.Float32 || len(s.Shape) != 2 || s.Shape[0] < 1 || s.Shape[1] < 1 {
		t.Fatalf("states are %s %v, want float32 rows", s.DType, s.Shape)
	}
	rows := make([][]float32, s.Shape[0])
	for i := range rows {
		rows[i] = make([]float32, s.Shape[1])
		for j := range rows[i] {
			at := 4 * (i*int(s.Shape[1]) + j)
			v := math.Float32frombits(uint32(s.Data[at]) | uint32(s.Data[at+1])<<8 | uint32(s.Data[at+2])<<16 | uint32(s.Data[at+3])<<24)
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("row %d column %d is %v", i, j, v)
			}
			rows[i][j] = v
		}
	}
	again, err := sglang.DecodeResponses(answer(rows, len(rows)))
	if err != nil {
		t.Fatal(err)
	}
	if string(again[0].States.Data) != string(s.Data) {
		t.Fatal("states differ after a round trip")
	}
}

func BenchmarkDecodeResponses(b *testing.B) {
	for _, shape := range [][2]int{{64, 64}, {64, 4096}} {
		rows, _ := randomRows(shape[0], shape[1])
		for _, r := range rows {
			for j := range r { // as short as bf16 values are in JSON
				r[j] = math.Float32frombits(math.Float32bits(float32(j%997)/31) &^ 0xffff)
			}
		}
		data := answer(rows, shape[0]-1)
		b.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sglang.DecodeResponses(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkClassify(b *testing.B) {
	data := hsxtest.Golden(b, "response.json")
	b.Run("response", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if sglang.Classify(data) != sglang.KindResponse {
				b.Fatal("not a response")
			}
		}
	})
}
