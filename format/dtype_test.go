package format_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestDTypeRoundTrip(t *testing.T) {
	t.Parallel()
	for d := format.Bool; d <= format.Float64; d++ {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			if d.Size() == 0 {
				t.Errorf("Size() of %s is 0", d)
			}
			if got, err := format.ParseDType(d.String()); err != nil || got != d {
				t.Errorf("ParseDType(%q): got %v, %v, want %v", d, got, err, d)
			}
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatalf("Marshal(%s): got error %v", d, err)
			}
			var got format.DType
			if err := json.Unmarshal(text, &got); err != nil || got != d {
				t.Errorf("Unmarshal(%s): got %v, %v, want %v", text, got, err, d)
			}
		})
	}
}

func TestDTypeKinds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		dtype          format.DType
		size           int
		state, integer bool
	}{
		"bf16":    {format.BFloat16, 2, true, false},
		"fp16":    {format.Float16, 2, true, false},
		"fp32":    {format.Float32, 4, true, false},
		"fp64":    {format.Float64, 8, false, false},
		"bool":    {format.Bool, 1, false, false},
		"u8":      {format.Uint8, 1, false, true},
		"i64":     {format.Int64, 8, false, true},
		"invalid": {format.InvalidDType, 0, false, false},
		"beyond":  {format.Float64 + 1, 0, false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tc.dtype
			if d.Size() != tc.size || d.IsState() != tc.state || d.IsInteger() != tc.integer {
				t.Errorf("%s: got size %d, state %t, integer %t, want %d, %t, %t",
					d, d.Size(), d.IsState(), d.IsInteger(), tc.size, tc.state, tc.integer)
			}
			if short, err := format.ParseDType(name); tc.size > 0 && (err != nil || short != d) {
				t.Errorf("ParseDType(%q): got %v, %v, want %v", name, short, err, d)
			}
		})
	}
}

func TestDTypeRefusals(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "invalid", "BF16", "float8_e4m3fn", " bf16", "torch.bfloat16"} {
		if got, err := format.ParseDType(s); err == nil || got != format.InvalidDType {
			t.Errorf("ParseDType(%q): got %v, %v, want an error", s, got, err)
		}
	}
	if text, err := format.InvalidDType.MarshalText(); err == nil {
		t.Errorf("MarshalText of an invalid dtype: got %q, want an error", text)
	}
	d := format.Float16
	if err := d.UnmarshalText([]byte("half")); err == nil || d != format.Float16 {
		t.Errorf("UnmarshalText(half): got %v, %v, want an error and no change", d, err)
	}
}

func TestDTypeFloats(t *testing.T) {
	t.Parallel()
	tests := map[format.DType][]byte{ // 1, -2, 0.5
		format.BFloat16: {0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3f},
		format.Float16:  {0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38},
		format.Float32:  {0, 0, 0x80, 0x3f, 0, 0, 0x00, 0xc0, 0, 0, 0x00, 0x3f},
	}
	for d, row := range tests {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			for n := range 4 { // fewer than the row has, too
				got := make([]float32, n)
				d.Floats(got, row)
				if diff := cmp.Diff([]float32{1, -2, 0.5}[:n], got); diff != "" {
					t.Errorf("Floats of %d elements (-want +got):\n%s", n, diff)
				}
			}
		})
	}
	for d := format.InvalidDType; d <= format.Float64; d++ {
		got := []float32{7}
		if d.Floats(got, make([]byte, 8)); !d.IsState() && got[0] != 7 {
			t.Errorf("%s: Floats wrote %g, want nothing written", d, got[0])
		}
	}
}

// FuzzBF16Floats holds what is read of bf16, by vectors where there are some, to one number
// at a time, and to the room that there is.
func FuzzBF16Floats(f *testing.F) {
	f.Add([]byte{0x80, 0x3f, 0x00, 0xc0, 0xc1, 0x7f, 0x01, 0x00}, uint8(7), uint8(1))
	f.Add([]byte{0xff, 0xff, 0x80, 0xff}, uint8(33), uint8(0))
	f.Fuzz(func(t *testing.T, pattern []byte, n, at uint8) {
		if len(pattern) == 0 {
			return
		}
		row := make([]byte, int(at)+2*int(n)) // at any alignment
		for i := range row {
			row[i] = pattern[i%len(pattern)] ^ byte(i>>5)
		}
		row = row[at:]
		got := make([]float32, int(n)+1)
		format.BFloat16.Floats(got[:n], row)
		for i := range n {
			want := uint32(binary.LittleEndian.Uint16(row[2*int(i):])) << 16
			if bits := math.Float32bits(got[i]); bits != want {
				t.Errorf("element %d of %d: got bits %#x, want %#x", i, n, bits, want)
			}
		}
		if got[n] != 0 {
			t.Errorf("%d elements: the one behind them was written", n)
		}
	})
}
