package format_test

import (
	"encoding/json"
	"testing"

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
