package export_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hsx/export"
	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// order is the ids of an export's samples by split and number.
func order(t *testing.T, p *export.Plan) map[string][]string {
	t.Helper()
	type file struct {
		n  int
		id string
	}
	found := map[string][]file{}
	for _, line := range journal(t, written(t, p))[1:] {
		var f file
		dir, rest, ok := strings.Cut(strings.TrimPrefix(line, `{"file":"`), "rows_0-2000/data_")
		if _, err := fmt.Sscanf(rest, "%d.ckpt", &f.n); !ok || err != nil {
			t.Fatalf("line %s: %v", line, err)
		}
		_, rest, _ = strings.Cut(line, `"id":"`)
		f.id, _, _ = strings.Cut(rest, `"`)
		found[dir] = append(found[dir], f)
	}
	out := map[string][]string{}
	for dir, files := range found {
		slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.n, b.n) })
		for n, f := range files {
			if f.n != n {
				t.Errorf("%s: file %d is missing", dir, n)
			}
			out[strings.TrimSuffix(dir, "/")] = append(out[strings.TrimSuffix(dir, "/")], f.id)
		}
	}
	return out
}

func TestSelect(t *testing.T) {
	t.Parallel()
	var samples []*format.Sample
	for i, id := range []string{"a/0", "a/b/1", "b/2", "a/3"} {
		s := hsxtest.Sample(full(format.NormPost), i, 2+i)
		s.ID = id
		samples = append(samples, s)
	}
	ds := stored(t, samples)
	for name, tt := range map[string]struct {
		opt     export.Options
		want    []string
		leftOut int
	}{
		"all":             {export.Options{}, []string{"a/0", "a/b/1", "b/2", "a/3"}, 0},
		"pattern":         {export.Options{Select: "a*"}, []string{"a/0", "a/b/1", "a/3"}, 1},
		"pattern, exact":  {export.Options{Select: "b/2"}, []string{"b/2"}, 3},
		"pattern, any":    {export.Options{Select: "*/?"}, []string{"a/0", "a/b/1", "b/2", "a/3"}, 0},
		"pattern, class":  {export.Options{Select: "*[12]"}, []string{"a/b/1", "b/2"}, 2},
		"least":           {export.Options{MinTokens: 4}, []string{"b/2", "a/3"}, 2},
		"most":            {export.Options{MaxTokens: 3}, []string{"a/0", "a/b/1"}, 2},
		"limit":           {export.Options{Limit: 2}, []string{"a/0", "a/b/1"}, 2},
		"limit, enough":   {export.Options{Limit: 4}, []string{"a/0", "a/b/1", "b/2", "a/3"}, 0},
		"all at once":     {export.Options{Select: "a*", MinTokens: 3, MaxTokens: 5, Limit: 1}, []string{"a/b/1"}, 3},
		"limit, shuffled": {export.Options{Shuffle: true, Seed: 1, Limit: 3}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.opt.To = "specforge"
			p := planned(t, ds, tt.opt)
			got := order(t, p)[""]
			if tt.want != nil {
				if diff := gocmp.Diff(tt.want, got); diff != "" {
					t.Errorf("samples (-want +got):\n%s", diff)
				}
			}
			if p.LeftOut != tt.leftOut || p.Samples != len(got) || len(got)+p.LeftOut != len(samples) {
				t.Errorf("plan has %d samples and leaves out %d, want %d and %d", p.Samples, p.LeftOut, len(got), tt.leftOut)
			}
		})
	}
}

// many is samples of one token whose digests differ.
func many(n int) []*format.Sample {
	spec := full(format.NormPost)
	spec.Hidden = 1
	var samples []*format.Sample
	for i := range n {
		samples = append(samples, hsxtest.Sample(spec, i, 2))
	}
	return samples
}

// TestShuffle wants a permutation that the seed decides alone, and in which samples that
// come later do not change the order of those that were there.
func TestShuffle(t *testing.T) {
	t.Parallel()
	samples := many(60)
	dir := storeAt(t, filepath.Join(t.TempDir(), "ds"), samples[:50])
	shuffled := func(seed uint64) []string {
		return order(t, planned(t, opened(t, dir), export.Options{To: "specforge", Shuffle: true, Seed: seed}))[""]
	}
	plain := order(t, planned(t, opened(t, dir), export.Options{To: "specforge"}))[""]
	first, again, other := shuffled(1), shuffled(1), shuffled(2)
	if diff := gocmp.Diff(first, again); diff != "" {
		t.Errorf("equal seeds (-first +second):\n%s", diff)
	}
	for name, got := range map[string][]string{"seed 1": first, "seed 2": other} {
		if slices.Equal(got, plain) {
			t.Errorf("%s: order is that of the dataset", name)
		}
		if diff := gocmp.Diff(slices.Sorted(slices.Values(plain)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s: samples (-want +got):\n%s", name, diff)
		}
	}
	if slices.Equal(first, other) {
		t.Error("seeds 1 and 2 give one order")
	}
	storeAt(t, dir, samples[50:])
	grown := slices.DeleteFunc(shuffled(1), func(id string) bool { return !slices.Contains(plain, id) })
	if diff := gocmp.Diff(first, grown); diff != "" {
		t.Errorf("order of the samples that were there before (-want +got):\n%s", diff)
	}
}

// TestSplitIsStable adds samples to a dataset: none of the others moves, repeated ones
// stay together, and the shares are about those that were asked for.
func TestSplitIsStable(t *testing.T) {
	t.Parallel()
	samples := many(420)
	twin := *samples[7]
	twin.ID, twin.Input.Path = "twin", "twin"
	dir := storeAt(t, filepath.Join(t.TempDir(), "ds"), append(samples[:300:300], &twin))
	splits := []export.Split{{"train", 0.7}, {"val", 0.2}, {"test", 0.1}}
	assigned := func() map[string]string {
		split := map[string]string{}
		for name, ids := range order(t, planned(t, opened(t, dir), export.Options{To: "specforge", Splits: splits})) {
			for _, id := range ids {
				split[id] = name
			}
		}
		return split
	}
	before := assigned()
	if before["twin"] != before[samples[7].ID] {
		t.Errorf("sample is in %s, its twin in %s", before[samples[7].ID], before["twin"])
	}
	count := map[string]float64{}
	for _, s := range before {
		count[s]++
	}
	for _, s := range splits {
		want := s.Share * 301
		if got := count[s.Name]; math.Abs(got-want) > 4*math.Sqrt(want) {
			t.Errorf("split %s has %g samples, want about %g", s.Name, got, want)
		}
	}
	storeAt(t, dir, samples[300:])
	after := assigned()
	if len(after) != 421 {
		t.Errorf("splits have %d samples, want 421", len(after))
	}
	for id, s := range before {
		if after[id] != s {
			t.Errorf("sample %s moved from %s to %s", id, s, after[id])
		}
	}
}

func TestCheckSplits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		splits []export.Split
		want   string // in the error, "" for none
	}{
		"none":          {nil, ""},
		"one":           {[]export.Split{{"train", 1}}, ""},
		"ten":           {[]export.Split{{"0", .1}, {"1", .1}, {"2", .1}, {"3", .1}, {"4", .1}, {"5", .1}, {"6", .1}, {"7", .1}, {"8", .1}, {"9", .1}}, ""},
		"too little":    {[]export.Split{{"a", 0.5}, {"b", 0.4}}, "0.9 in all, want 1"},
		"too much":      {[]export.Split{{"a", 0.5}, {"b", 0.6}}, "1.1 in all, want 1"},
		"zero":          {[]export.Split{{"a", 1}, {"b", 0}}, `"b" has the share 0`},
		"negative":      {[]export.Split{{"a", 1.5}, {"b", -0.5}}, `"a" has the share 1.5`},
		"nan":           {[]export.Split{{"a", math.NaN()}}, "share NaN"},
		"twice":         {[]export.Split{{"a", 0.5}, {"a", 0.5}}, "twice"},
		"no name":       {[]export.Split{{"", 1}}, "no plain name"},
		"parent":        {[]export.Split{{"..", 1}}, "no plain name"},
		"path":          {[]export.Split{{"a/b", 1}}, "no plain name"},
		"a file of hsx": {[]export.Split{{"hsx-export.json", 1}}, "no plain name"},
		"other letters": {[]export.Split{{"ü", 1}}, "no plain name"},
		"too long":      {[]export.Split{{strings.Repeat("a", 101), 1}}, "no plain name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := export.CheckSplits(tt.splits)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestPlainName(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"a":                        "a",
		"Conv_12-b.3":              "Conv_12-b.3",
		"rows_0-2000/data_3.ckpt":  "rows_0-2000%2Fdata_3.ckpt",
		"..":                       "%2E.",
		"../../etc/passwd":         "%2E.%2F..%2Fetc%2Fpasswd",
		".hidden":                  "%2Ehidden",
		"a%2Fb":                    "a%252Fb",
		"a b\n":                    "a%20b%0A",
		"ü":                        "%C3%BC",
		"hsx-export.json":          "%68sx-export.json",
		"file#3":                   "file%233",
		strings.Repeat("a", 180):   strings.Repeat("a", 180),
		strings.Repeat("b", 181):   strings.Repeat("b", 100) + "-7152883a584ca2fffa87182d7ab22a81",
		strings.Repeat("/", 1<<16): strings.Repeat("%2F", 33) + "%-7a9ad6ffd12f3d1f7b78ea0b618d8036",
	} {
		if got := export.PlainName(id); got != want {
			t.Errorf("PlainName(%.20q): got %q, want %q", id, got, want)
		}
	}
}

func FuzzPlainName(f *testing.F) {
	f.Add("a", "b")
	f.Add("a/b", "a%2Fb")
	f.Add(strings.Repeat("a", 181), strings.Repeat("a", 182))
	f.Add("hsx-export", "..")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := export.PlainName(a), export.PlainName(b)
		if x == y && a != b {
			t.Errorf("%q and %q have one name %q", a, b, x)
		}
		if a != "" && (x == "" || len(x) > 200 || x != filepath.Base(x) || x[0] == '.' || strings.HasPrefix(x, "hsx-export") || strings.ContainsAny(x, "/\\\x00 \n")) {
			t.Errorf("name of %q is %q, want a plain one", a, x)
		}
	})
}

// TestRefused exports samples of which some lack what the reader needs.
func TestRefused(t *testing.T) {
	t.Parallel()
	var samples []*format.Sample
	for i, mask := range [][]byte{{1, 1, 0}, nil, {1, 0, 1}, {0, 255, 7}, {0, 0, 0}} {
		s := hsxtest.Sample(full(format.NormPost), i, 3)
		s.LossMask = mask
		samples = append(samples, s)
	}
	for to, want := range map[string][]string{
		"specforge-eagle3": {"sample-1: loss_mask is missing, and specforge-eagle3 needs it"},
		"specforge-dflash": {
			"sample-1: loss_mask is missing, and specforge-dflash needs it",
			"sample-2: loss_mask marks no two tokens in a row, without which specforge-dflash stops at a sample",
			"sample-4: loss_mask marks no two tokens in a row, without which specforge-dflash stops at a sample",
		},
		"modelopt": nil,
		"npy":      nil,
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			var got []string
			p := planned(t, stored(t, samples), export.Options{To: to, Refused: func(r export.Refusal) { got = append(got, r.ID+": "+r.Reason) }})
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
			if p.Refused != len(want) || p.Samples != len(samples)-len(want) {
				t.Errorf("plan has %d samples and refuses %d, want %d and %d", p.Samples, p.Refused, len(samples)-len(want), len(want))
			}
			dir := written(t, p) // what the plan takes, Emit takes
			if n := len(journal(t, dir)) - 1; n != p.Samples {
				t.Errorf("journal has %d samples, want %d", n, p.Samples)
			}
		})
	}
}

// TestPlanErrors wants a reason where nothing can be exported.
func TestPlanErrors(t *testing.T) {
	t.Parallel()
	noMask := full(format.NormPost)
	noMask.NoMask = true
	noFinal := full(format.NormPost)
	noFinal.Final = false
	two := full(format.NormPost)
	two.Layers = two.Layers[:2]
	for name, tt := range map[string]struct {
		spec hsxtest.Spec
		opt  export.Options
		want string
	}{
		"target":           {full(format.NormPost), export.Options{To: "nobody"}, `target "nobody" is not known`},
		"mask":             {noMask, export.Options{To: "specforge"}, "none of 1 samples can be exported: the last, \"sample-0\": loss_mask is missing"},
		"none selected":    {full(format.NormPost), export.Options{To: "specforge", Select: "x"}, "none of 1 samples is selected"},
		"pattern":          {full(format.NormPost), export.Options{To: "specforge", Select: "[x"}, `select "[x": syntax error in pattern`},
		"no final":         {noFinal, export.Options{To: "specforge"}, "final is missing"},
		"layer":            {full(format.NormPost), export.Options{To: "specforge", Layers: format.Layers{2, 31, 58}}, "P_31 was not captured"},
		"two layers":       {two, export.Options{To: "specforge"}, "wants 3 layers, not 2"},
		"post to pre":      {full(format.NormPost), export.Options{To: "speculators"}, "the RMS of each row is lost"},
		"post to pre, npy": {full(format.NormPost), export.Options{To: "npy", Final: format.NormPre}, "the RMS of each row is lost"},
		"pre, no norm":     {full(format.NormPre), export.Options{To: "specforge"}, "needs the weight of the final norm (--target)"},
		"pre, no norm, mo": {full(format.NormPre), export.Options{To: "modelopt", Final: format.NormPost}, "needs the weight of the final norm (--target)"},
		"norm fails":       {full(format.NormPre), export.Options{To: "specforge", Norm: func() (*export.Norm, error) { return nil, errors.New("no weight") }}, "no weight"},
		"norm's width":     {hsxtest.Spec{Hidden: 4, Layers: two.Layers, DType: format.Float32, Final: true, Norm: format.NormPre}, export.Options{To: "specforge-dspark", Norm: norm}, "has 8 weights, want 4"},
		"unknown":          {full(format.NormUnknown), export.Options{To: "specforge"}, "unknown norm state"},
		"unknown, said":    {full(format.NormUnknown), export.Options{To: "npy", Final: format.NormPost}, "unknown norm state"},
		"not taken":        {full(format.NormPre), export.Options{To: "speculators", Final: format.NormPost}, "speculators does not take a final after the norm"},
		"no final to norm": {noFinal, export.Options{To: "npy", Final: format.NormPost}, "final cannot be written after the norm: there is none"},
		"final not held":   {full(format.NormPost), export.Options{To: "specforge-dflash", Final: format.NormPost}, "final cannot be written after the norm"},
		"splits":           {full(format.NormPost), export.Options{To: "specforge", Splits: []export.Split{{"a", 0.5}}}, "want 1"},
		"vocabulary":       {full(format.NormPost), export.Options{To: "modelopt", VocabMap: &format.Record{}}, "has no file for a draft's vocabulary map"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := export.NewPlan(t.Context(), dataset(t, tt.spec, 3), tt.opt)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
	empty := stored(t, nil)
	if _, err := export.NewPlan(t.Context(), empty, export.Options{To: "npy"}); err == nil || !strings.Contains(err.Error(), "holds no samples") {
		t.Errorf("empty dataset: got error %v, want that it holds no samples", err)
	}
}

// TestDamagedDataset stops at a sample whose states are not as they were written.
func TestDamagedDataset(t *testing.T) {
	t.Parallel()
	dir := storeAt(t, filepath.Join(t.TempDir(), "ds"), many(5))
	ds := opened(t, dir)
	damage(t, filepath.Join(dir, "shards", "000000.arrow"), ds)
	plan := planned(t, ds, export.Options{To: "specforge"})
	out := filepath.Join(t.TempDir(), "out")
	_, err := plan.Run(t.Context(), out)
	if !shard.IsCorrupt(err) {
		t.Errorf("got error %v, want that the dataset is damaged", err)
	}
	files := tree(t, out)
	if _, ok := files[export.MappingName]; ok || len(files) > 4 {
		t.Errorf("files are %q, want at most the 4 sound samples", names(files))
	}
}
