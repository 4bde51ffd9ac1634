package format_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestParseLayers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in           string
		convention   format.Convention
		want         format.Layers
		wantErrParts []string
	}{
		"post":               {in: "2,30,58", want: format.Layers{2, 30, 58}},
		"boundary":           {in: "3,31,59", convention: format.Boundary, want: format.Layers{2, 30, 58}},
		"same ids, one off":  {in: "2,30,58", convention: format.Boundary, want: format.Layers{1, 29, 57}},
		"spaces":             {in: " 2 ,\t30", want: format.Layers{2, 30}},
		"embedding post":     {in: "-1,0", want: format.Layers{format.Embedding, 0}},
		"embedding boundary": {in: "0,1", convention: format.Boundary, want: format.Layers{format.Embedding, 0}},
		"highest":            {in: "2147483647", want: format.Layers{math.MaxInt32}},

		"empty":             {in: "", wantErrParts: []string{`""`, "not an integer"}},
		"trailing comma":    {in: "2,30,", wantErrParts: []string{`""`, "not an integer"}},
		"word":              {in: "2,x,58", wantErrParts: []string{`"x"`}},
		"float":             {in: "2.0", wantErrParts: []string{`"2.0"`}},
		"too long":          {in: "99999999999999999999", wantErrParts: []string{"not an integer"}},
		"too high":          {in: "2147483648", wantErrParts: []string{"2147483648", "out of range"}},
		"below post":        {in: "-2", wantErrParts: []string{"-2", "post", "-1 is the embedding"}},
		"below boundary":    {in: "-1,3", convention: format.Boundary, wantErrParts: []string{"-1", "boundary", "0 is the embedding"}},
		"repeated":          {in: "2,30,30", wantErrParts: []string{"30 is repeated"}},
		"descending":        {in: "58,30,2", wantErrParts: []string{"30 follows 58", "ascending"}},
		"final named first": {in: "61,2,30,58", convention: format.Boundary, wantErrParts: []string{"2 follows 61"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := format.ParseLayers(tc.in, tc.convention)
			checkErr(t, err, tc.wantErrParts)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ParseLayers(%q, %s) (-want +got):\n%s", tc.in, tc.convention, diff)
			}
		})
	}
}

// checkErr wants an error exactly when there are parts, and each part in its text.
func checkErr(t *testing.T, err error, parts []string) {
	t.Helper()
	if (err != nil) != (len(parts) > 0) {
		t.Fatalf("got error %v, want one with %q", err, parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got error %q, want it to contain %q", err, p)
		}
	}
}

func TestNewLayersEmpty(t *testing.T) {
	t.Parallel()
	if ls, err := format.NewLayers(nil, format.PostLayer); err == nil {
		t.Errorf("NewLayers(nil): got %v, want an error", ls)
	}
}

func TestLayersText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		layers                 format.Layers
		text, post, boundaries string
	}{
		"triple":    {format.Layers{2, 30, 58}, "P_2 P_30 P_58 (post 2,30,58; boundary 3,31,59)", "2,30,58", "3,31,59"},
		"embedding": {format.Layers{-1}, "P_-1 (post -1; boundary 0)", "-1", "0"},
		"none":      {nil, "none", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.layers.String(); got != tc.text {
				t.Errorf("String(): got %q, want %q", got, tc.text)
			}
			if got := tc.layers.IDs(format.PostLayer); got != tc.post {
				t.Errorf("IDs(post): got %q, want %q", got, tc.post)
			}
			if got := tc.layers.IDs(format.Boundary); got != tc.boundaries {
				t.Errorf("IDs(boundary): got %q, want %q", got, tc.boundaries)
			}
		})
	}
}

func TestLayersCheck(t *testing.T) {
	t.Parallel()
	ls := format.Layers{2, 30, 58}
	for n, parts := range map[int][]string{0: nil, 59: nil, 61: nil, 58: {"P_58", "59 boundary", "58 layers", "P_57"}, 2: {"P_2 ", "P_1"}} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			checkErr(t, ls.Check(n), parts)
		})
	}
}

func TestConventionAndNormText(t *testing.T) {
	t.Parallel()
	type both struct {
		C format.Convention
		N format.Norm
	}
	for _, want := range []both{{format.PostLayer, format.NormUnknown}, {format.Boundary, format.NormPre}, {format.PostLayer, format.NormPost}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("Marshal(%v): got error %v", want, err)
		}
		var got both
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("Unmarshal(%s): got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, s := range []string{"", "Post", "hf", "1"} {
		var got both
		if err := got.C.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("Convention.UnmarshalText(%q): got %v, want an error", s, got.C)
		}
		if err := got.N.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("Norm.UnmarshalText(%q): got %v, want an error", s, got.N)
		}
	}
}

func FuzzParseLayers(f *testing.F) {
	for _, s := range []string{"2,30,58", "3,31,59", "-1,0", "0", "", ",", "58,30,2", "1,1", "+1", "0x2", " 7 ", "2147483647", "-9223372036854775808"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, boundary bool) {
		c := format.PostLayer
		if boundary {
			c = format.Boundary
		}
		ls, err := format.ParseLayers(s, c)
		if err != nil {
			if ls != nil || err.Error() == "" {
				t.Fatalf("ParseLayers(%q, %s): got %v with error %q", s, c, ls, err)
			}
			return
		}
		if want := strings.Count(s, ",") + 1; len(ls) != want {
			t.Fatalf("ParseLayers(%q, %s): got %d layers, want %d", s, c, len(ls), want)
		}
		for i, l := range ls {
			if l < format.Embedding || i > 0 && l <= ls[i-1] {
				t.Fatalf("ParseLayers(%q, %s): got %v, want increasing layers from P_-1", s, c, ls)
			}
			if got := c.Layer(c.ID(l)); got != l {
				t.Fatalf("%s: Layer(ID(%s)) is %s", c, l, got)
			}
		}
		// Whatever convention a list is written in, it names the same layers. The
		// highest layer has no boundary id that ParseLayers takes.
		for _, c := range []format.Convention{format.PostLayer, format.Boundary} {
			if c.ID(ls[len(ls)-1]) > math.MaxInt32 {
				continue
			}
			again, err := format.ParseLayers(ls.IDs(c), c)
			if err != nil || !cmp.Equal(again, ls) {
				t.Fatalf("ParseLayers(%q, %s): got %v, %v, want %v", ls.IDs(c), c, again, err, ls)
			}
		}
	})
}
