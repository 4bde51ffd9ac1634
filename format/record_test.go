package format_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	x := &format.Tensor{Name: "x"}
	r := &format.Record{Fields: []format.Field{{"x", x}, {"none", nil}, {"id", "conv-3"}, {"x", &format.Tensor{Name: "second"}}}}
	tests := map[string]struct {
		value  format.Value
		ok     bool
		tensor *format.Tensor
	}{
		"x":      {x, true, x}, // the first of two
		"none":   {nil, true, nil},
		"id":     {"conv-3", true, nil},
		"absent": {nil, false, nil},
	}
	for key, tc := range tests {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			if v, ok := r.Get(key); ok != tc.ok || v != tc.value {
				t.Errorf("Get(%q): got %v, %t, want %v, %t", key, v, ok, tc.value, tc.ok)
			}
			if got := r.Tensor(key); got != tc.tensor {
				t.Errorf("Tensor(%q): got %v, want %v", key, got, tc.tensor)
			}
		})
	}
	if diff := cmp.Diff([]string{"x", "none", "id", "x"}, r.Keys()); diff != "" {
		t.Errorf("Keys (-want +got):\n%s", diff)
	}
}
