package validate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func statLayout(d format.DType, width int) format.Layout {
	return format.Layout{HiddenSize: width, States: []format.State{
		{Role: format.RoleLayer, Layer: 2, DType: d},
		{Role: format.RoleFinal, Norm: format.NormPost, DType: d},
	}}
}

// statPlaced is a sample and its place.
type statPlaced struct {
	ref    Ref
	sample *format.Sample
}

// statRows are n rows of one value, with other values at (row, channel) places.
func statRows(d format.DType, n, width int, value float32, other map[[2]int]float32) format.Rows {
	r := format.Rows{DType: d, N: n, Width: width, Stride: width * d.Size(), Data: make([]byte, n*width*d.Size())}
	for i := range n {
		for c := range width {
			v, ok := other[[2]int{i, c}]
			if !ok {
				v = value
			}
			at := r.Data[i*r.Stride+c*d.Size():]
			switch d {
			case format.BFloat16:
				binary.LittleEndian.PutUint16(at, uint16(math.Float32bits(v)>>16))
			case format.Float16: // values here are 0, a power of two, or not finite
				binary.LittleEndian.PutUint16(at, statHalf(v))
			case format.Float32:
				binary.LittleEndian.PutUint32(at, math.Float32bits(v))
			}
		}
	}
	return r
}

func statHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	switch {
	case v == 0:
		return uint16(bits >> 16)
	case bits>>23&0xff == 0xff:
		return uint16(bits>>16)&0x8000 | 0x7c00 | uint16(bits>>13)&0x3ff
	}
	return uint16(bits>>16)&0x8000 | uint16(bits>>23&0xff-112)<<10 | uint16(bits>>13)&0x3ff
}

func statSampleOf(id, source string, tokens []int32, mask []byte, l format.Layout, value float32, other map[[2]int]float32) *format.Sample {
	s := &format.Sample{ID: id, Input: format.Input{Path: source}, Tokens: tokens, LossMask: mask}
	for i, st := range l.States {
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: statRows(st.DType, len(tokens), l.HiddenSize, value*float32(i+1), other)})
	}
	return s
}

// statRandom are samples of several sources, lengths and shards.
func statRandom(l format.Layout, n, shards int, seed uint64) []statPlaced {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []statPlaced
	rows := map[int]int{}
	for i := range n {
		shard := i * shards / n
		tokens := make([]int32, rng.IntN(200))
		mask := make([]byte, len(tokens))
		for t := range tokens {
			tokens[t] = int32(rng.IntN(60) * rng.IntN(4))
			mask[t] = byte(rng.IntN(2))
		}
		if rng.IntN(5) == 0 {
			mask = nil
		}
		s := statSampleOf(fmt.Sprintf("s%d", i), fmt.Sprintf("set%d/part/%d.pt", rng.IntN(4), i), tokens, mask, l, float32(rng.NormFloat64()), map[[2]int]float32{
			{3, 1}: 1e-20, {5, 0}: float32(math.Inf(1)), {7, l.HiddenSize - 1}: 3e4,
		})
		out = append(out, statPlaced{Ref{shard, rows[shard]}, s})
		rows[shard]++
	}
	return out
}

func statScanOf(l format.Layout, v int, inDraft func(int32) bool, samples ...statPlaced) *StatScan {
	s := newStatScan(l, v, inDraft)
	for _, p := range samples {
		s.sample(&sampleFacts{Ref: p.ref, Sample: p.sample, States: factsOf(p.sample)}, nil)
	}
	return s
}

func TestStats(t *testing.T) {
	t.Parallel()
	l := statLayout(format.BFloat16, 8)
	s := statScanOf(l, 100, func(tok int32) bool { return tok < 50 },
		statPlaced{Ref{0, 0}, statSampleOf("a", "chat/a.pt", []int32{1, 2, 2, 60}, []byte{0, 1, 1, 1}, l, 2, map[[2]int]float32{{0, 0}: 1024, {1, 3}: 64, {2, 3}: 64, {3, 3}: 64})},
		statPlaced{Ref{0, 1}, statSampleOf("b", "code/b.pt", slices.Repeat([]int32{7}, 20), nil, l, 2, nil)},
		statPlaced{Ref{2, 0}, statSampleOf("c", "c.pt", []int32{-1, 100, 99}, []byte{0, 0, 0}, l, 4, map[[2]int]float32{{1, 1}: float32(math.NaN())})},
	)
	got := s.Stats()

	share := func(v float64) *float64 { return &v }
	if diff := cmp.Diff([]GroupStats{
		{Name: "code", Samples: 1, Tokens: 20, Bytes: 2 * 20 * 16, Lengths: LengthStats{Min: 20, P5: 20, P50: 20, P95: 20, P99: 20, Max: 20, Mean: 20, Bins: []LengthBin{{20, 21, 1}}}},
		{Name: "chat", Samples: 1, Tokens: 4, Bytes: 2 * 4 * 16, WithMask: 1, SupervisedShare: share(0.75), Short: 1, Lengths: LengthStats{Min: 4, P5: 4, P50: 4, P95: 4, P99: 4, Max: 4, Mean: 4, Bins: []LengthBin{{4, 5, 1}}}},
		{Name: ".", Samples: 1, Tokens: 3, Bytes: 2 * 3 * 16, WithMask: 1, SupervisedShare: share(0), Short: 1, Lengths: LengthStats{Min: 3, P5: 3, P50: 3, P95: 3, P99: 3, Max: 3, Mean: 3, Bins: []LengthBin{{3, 4, 1}}}},
	}, got.Groups); diff != "" {
		t.Errorf("Groups (-want +got):\n%s", diff)
	}
	zero, three := 0, 3
	if diff := cmp.Diff([]ShortSample{{"a", 0, 0, 4, &three}, {"c", 2, 0, 3, &zero}}, got.Short); diff != "" {
		t.Errorf("Short (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(VocabStats{
		Size: 100, Distinct: 5, Supervised: 2, Share: share(0.05), OutOfRange: 2,
		Top:   []TokenCount{{7, 20, 0}, {2, 2, 2}, {1, 1, 0}, {60, 1, 1}, {99, 1, 0}},
		Curve: []RankShare{{1, 20. / 25, 2. / 3}, {2, 22. / 25, 1}, {3, 23. / 25, 1}, {4, 24. / 25, 1}, {5, 1, 1}},
		Draft: &DraftStats{Size: 50, Unseen: 47, Share: share(23. / 27), SupervisedShare: share(2. / 3), Missing: []TokenCount{{60, 1, 1}, {99, 1, 0}}},
	}, got.Vocabulary); diff != "" {
		t.Errorf("Vocabulary (-want +got):\n%s", diff)
	}
	first := got.States[0]
	spike := math.Sqrt((64*64 + 7*4) / 8.)
	if first.Rows != 27 || first.NonFiniteRows != 1 || first.MaxAbs != 1024 {
		t.Errorf("States[0]: got %d rows, %d not finite, largest %v, want 27, 1, 1024", first.Rows, first.NonFiniteRows, first.MaxAbs)
	}
	start := math.Sqrt((1024*1024 + 7*4) / 8.)
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(b) })
	if diff := cmp.Diff([]PositionRMS{
		{0, 1, 3, (start + 2 + 4) / 3}, {1, 2, 2, (spike + 2) / 2}, {2, 4, 5, (2*spike + 2*2 + 4) / 5}, {4, 8, 4, 2}, {8, 16, 8, 2}, {16, 32, 4, 2},
	}, first.Positions, near); diff != "" {
		t.Errorf("Positions (-want +got):\n%s", diff)
	}
	// Three rows with the spike, seven of the long sample, one of the last: row 0 stays out.
	if out := first.Channels.Outliers; first.Channels.Rows != 11 || len(out) != 1 || out[0].Channel != 3 || math.Abs(out[0].RMS-math.Sqrt((3*64*64+7*4+16)/11.)) > 1e-9 {
		t.Errorf("Channels: got %+v, want channel 3 alone to stand out of 11 rows", first.Channels)
	}
	if len(got.Shards) != 2 || got.Shards[1].Shard != 2 || got.Shards[1].RMS[0] != 4 || got.Shards[1].RMS[1] != 8 {
		t.Errorf("Shards: got %+v, want shards 0 and 2, the latter with RMS 4 and 8", got.Shards)
	}
}

func TestStatsOfNothing(t *testing.T) {
	t.Parallel()
	got := newStatScan(statLayout(format.BFloat16, 4), 0, nil).Stats()
	if _, err := json.Marshal(got); err != nil {
		t.Errorf("Marshal: got error %v", err)
	}
	if got.Total.SupervisedShare != nil || got.Vocabulary.Share != nil || got.Vocabulary.Draft != nil || len(got.Groups) != 0 {
		t.Errorf("Stats(): got %+v, want no shares and no groups", got)
	}
}

// Whatever the division and its order, the parts add up to the bytes of the whole.
func TestStatScanMerges(t *testing.T) {
	t.Parallel()
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := statLayout(d, 65)
			samples := statRandom(l, 40, 11, 7)
			inDraft := func(tok int32) bool { return tok%3 == 0 }
			want := statJSON(t, statScanOf(l, 150, inDraft, samples...))
			for _, n := range []int{1, 2, 3, 11, 12} {
				parts := make([][]statPlaced, n)
				for _, p := range samples {
					parts[p.ref.Shard%n] = append(parts[p.ref.Shard%n], p)
				}
				forward, back := newStatScan(l, 150, inDraft), newStatScan(l, 150, inDraft)
				for i := range parts {
					forward.add(statScanOf(l, 150, inDraft, parts[i]...))
					// The other way round, and through JSON.
					text := statJSON(t, statScanOf(l, 150, inDraft, parts[n-1-i]...))
					later := newStatScan(l, 150, inDraft)
					if err := json.Unmarshal([]byte(text), later); err != nil {
						t.Fatalf("Unmarshal of part %d of %d: got error %v", n-i, n, err)
					}
					back.add(later)
				}
				for name, s := range map[string]*StatScan{"forward": forward, "back": back} {
					if diff := cmp.Diff(want, statJSON(t, s)); diff != "" {
						t.Errorf("%d parts, %s (-want +got):\n%s", n, name, diff)
					}
				}
			}
		})
	}
}

func statJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("Marshal: got error %v", err)
	}
	return string(text)
}

func TestStatGroupBounds(t *testing.T) {
	t.Parallel()
	l := statLayout(format.BFloat16, 1)
	var samples []statPlaced
	for i := range statGroupsKept + 300 {
		samples = append(samples, statPlaced{Ref{0, i}, statSampleOf("x", fmt.Sprintf("g%05d/x", i*7919%5000), []int32{1}, nil, l, 1, nil)})
	}
	want := statScanOf(l, 0, nil, samples...)
	slices.Reverse(samples)
	got := newStatScan(l, 0, nil)
	for half := range slices.Chunk(samples, 500) {
		got.add(statScanOf(l, 0, nil, half...))
	}
	if diff := cmp.Diff(statJSON(t, want.Groups)+statJSON(t, want.Other), statJSON(t, got.Groups)+statJSON(t, got.Other)); diff != "" {
		t.Errorf("groups depend on the order (-want +got):\n%s", diff)
	}
	stats := got.Stats()
	if last := stats.Groups[len(stats.Groups)-1]; len(stats.Groups) != statGroupsShown+1 || last.Name != "other" || last.Samples != statGroupsKept+300-statGroupsShown {
		t.Errorf("Groups: got %d, the last %q of %d samples, want %d and the rest in other", len(stats.Groups), last.Name, last.Samples, statGroupsShown+1)
	}
	if stats.Total.Samples != statGroupsKept+300 {
		t.Errorf("Total: got %d samples, want %d", stats.Total.Samples, statGroupsKept+300)
	}
}

func TestStatSource(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"": ".", "a.pt": ".", "a/b.pt": "a", "a/b/c.pt": "a", "/a/b.pt": "a", "//": ".", "ü/x": "ü",
		"\xff/x": "�", strings.Repeat("x", 1000) + "/y": strings.Repeat("x", statNameBytes),
	}
	for path, want := range tests {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if got := statSource(path); got != want {
				t.Errorf("statSource(%q): got %q, want %q", path, got, want)
			}
		})
	}
}

// A token id costs no memory beyond the largest vocabularies.
func TestStatTokensBounded(t *testing.T) {
	t.Parallel()
	l := statLayout(format.BFloat16, 1)
	s := statScanOf(l, 0, nil, statPlaced{Ref{}, statSampleOf("x", "x", []int32{math.MaxInt32, math.MinInt32, 5}, []byte{1, 1, 1}, l, 1, nil)})
	s.flush()
	if len(s.All) != 6 || s.OutOfRange != 2 {
		t.Errorf("got counts of %d ids and %d out of range, want 6 and 2", len(s.All), s.OutOfRange)
	}
}
