package capture_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/internal/hsxtest"
)

// TestDecodeAllocates feeds decode what is made to cost much.
func TestDecodeAllocates(t *testing.T) { // not parallel: it reads the process's counters
	var keys, lines, tensors strings.Builder
	keys.WriteString(`{"0":1`)
	for i := range 50000 {
		fmt.Fprintf(&keys, `,"%d":1`, i+1)
		fmt.Fprintf(&lines, "{\"a\":%d}\n", i)
	}
	keys.WriteString("}")
	tensors.WriteString(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`)
	for i := range 10000 {
		fmt.Fprintf(&tensors, `,"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	header := tensors.String() + "}"
	header += strings.Repeat(" ", 8-len(header)%8)
	size := []byte{byte(len(header)), byte(len(header) >> 8), byte(len(header) >> 16), 0, 0, 0, 0, 0}
	tests := map[string][]byte{
		"JSON of many keys":    []byte(keys.String()),
		"JSON of many levels":  bytes.Repeat([]byte("["), 1<<20),
		"lines of JSON":        []byte(lines.String()),
		"answers of no rows":   []byte("[" + strings.Repeat(`{"meta_info":{}},`, 20000) + "1]"),
		"safetensors of names": append(size, header...),
		"spaces":               bytes.Repeat([]byte(" "), 1<<20),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			const most = 32
			got := hsxtest.Allocated(func() { _, _ = capture.Decode(data, "x") }) // either answer will do
			if limit := uint64(1<<20 + most*len(data)); got > limit {
				t.Errorf("Decode: %d bytes were allocated for %d, want at most %d", got, len(data), limit)
			}
		})
	}
}

// TestRunAllocates bounds what a file of tiny samples costs.
func TestRunAllocates(t *testing.T) { // not parallel: it reads the process's counters
	dir := t.TempDir()
	const n = 50000
	data := encode(t, tensor("input_ids", format.Uint8, n, 1), tensor("loss_mask", format.Uint8, n, 1), tensor("attention_mask", format.Uint8, n, 1),
		tensor("position_mask", format.Uint8, n, 1), tensor("aux_hidden_states", format.BFloat16, n, 1, 2))
	write(t, dir, "x", data)
	r := &record{put: func(*format.Sample) error { return format.ErrKnown }}
	got := hsxtest.Allocated(func() { ingest(t, r, capture.Options{Facts: twoLayers()}, dir) })
	if limit := uint64(n * 2048); got > limit || r.err != nil || r.stats.Inputs != 1 {
		t.Errorf("Run: %d bytes were allocated for %d samples, want at most %d (%+v, error %v)", got, n, limit, r.stats, r.err)
	}
}
