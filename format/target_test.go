package format_test

import (
	"testing"

	"hsx/format"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in           string
		want         format.Target
		wantErrParts []string
	}{
		"flat": {
			in:   `{"model_type":"llama","num_hidden_layers":5,"hidden_size":64,"vocab_size":512}`,
			want: format.Target{Name: "llama", Layers: 5, HiddenSize: 64, VocabSize: 512},
		},
		"path names it": {
			in:   `{"_name_or_path":"org/model","model_type":"llama","num_hidden_layers":5,"hidden_size":64}`,
			want: format.Target{Name: "org/model", Layers: 5, HiddenSize: 64},
		},
		"text_config": {
			in:   `{"model_type":"vl","text_config":{"num_hidden_layers":61,"hidden_size":7168,"vocab_size":163840}}`,
			want: format.Target{Name: "vl", Layers: 61, HiddenSize: 7168, VocabSize: 163840},
		},
		"text_config wins": {
			in:   `{"num_hidden_layers":27,"hidden_size":1152,"vocab_size":9,"text_config":{"num_hidden_layers":61,"hidden_size":7168}}`,
			want: format.Target{Layers: 61, HiddenSize: 7168, VocabSize: 9},
		},
		"no sizes":        {in: `{"model_type":"llama"}`, wantErrParts: []string{"num_hidden_layers 0", "hidden_size 0", "text_config"}},
		"negative layers": {in: `{"num_hidden_layers":-1,"hidden_size":64}`, wantErrParts: []string{"num_hidden_layers -1"}},
		"wrong type":      {in: `{"num_hidden_layers":"5","hidden_size":64}`, wantErrParts: []string{"not JSON"}},
		"cut":             {in: `{"num_hidden_layers":5,`, wantErrParts: []string{"not JSON"}},
		"empty":           {in: ``, wantErrParts: []string{"not JSON"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := format.ParseTarget([]byte(tc.in))
			checkErr(t, err, tc.wantErrParts)
			if got != tc.want {
				t.Errorf("ParseTarget(%s): got %+v, want %+v", tc.in, got, tc.want)
			}
		})
	}
}

func TestUnitOffsetNorm(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{
		"gemma": true, "gemma2": true, "gemma3": true, "gemma3_text": true, "qwen3_next": true, "qwen3_5_text": true, "step3p5": true,
		"gemma3n": false, "gemma3n_text": false, "gemma4": false, "gemma4_text": false, "llama": false, "qwen3": false, "": false,
	} {
		if got := format.UnitOffsetNorm(kind); got != want {
			t.Errorf("UnitOffsetNorm(%q): got %t, want %t", kind, got, want)
		}
	}
}

func TestTargetConflict(t *testing.T) {
	t.Parallel()
	full := format.Target{Name: "org/model", Layers: 61, HiddenSize: 7168, VocabSize: 163840}
	for name, tc := range map[string]struct {
		other    format.Target
		what     string
		sameName bool
	}{
		"same":             {full, "", true},
		"nothing known":    {format.Target{}, "", true},
		"layers":           {format.Target{Layers: 60}, "layers", true},
		"hidden size":      {format.Target{Layers: 61, HiddenSize: 64}, "hidden size", true},
		"vocabulary":       {format.Target{VocabSize: 1}, "vocabulary", true},
		"where it lies":    {format.Target{Name: "/mnt/models/model/"}, "", true},
		"another":          {format.Target{Name: "org/model-2"}, "", false},
		"on other systems": {format.Target{Name: `D:\models\model`}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			what, of, ofOther := full.Conflict(tc.other)
			if back, ofBack, ofFull := tc.other.Conflict(full); what != tc.what || back != what || ofBack != ofOther || ofFull != of {
				t.Errorf("Conflict = %q %d %d, the other way %q %d %d, want %q", what, of, ofOther, back, ofBack, ofFull, tc.what)
			}
			if got := full.SameName(tc.other); got != tc.sameName {
				t.Errorf("SameName(%q) = %t, want %t", tc.other.Name, got, tc.sameName)
			}
			if got := (format.Target{}).Or(tc.other).Or(full); got != tc.other.Or(full) || tc.other == (format.Target{}) && got != full {
				t.Errorf("Or gives %+v", got)
			}
		})
	}
}
