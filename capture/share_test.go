package capture_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

// sized writes a file of each size, in an order that a plan has too.
func sized(t *testing.T, sizes ...int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, n := range sizes {
		write(t, dir, fmt.Sprintf("data_%d.pt", i), make([]byte, n))
	}
	return dir
}

// Shares are runs of inputs in their order, so that one after the other they are the
// whole, and none is longer than an equal share and two halves of an input.
func TestPlanShares(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	mixed := make([]int, 50)
	for i := range mixed {
		mixed[i] = rng.IntN(3000)
	}
	for name, tc := range map[string]struct {
		sizes []int
		parts int
		want  string // inputs of each part, when it matters
	}{
		"equal":           {[]int{10, 10, 10, 10, 10, 10}, 3, "2 2 2"},
		"by bytes":        {[]int{900, 100, 100, 100, 100, 500}, 2, "1 5"},
		"one is large":    {[]int{1, 1, 10000, 1, 1}, 3, "2 1 2"},
		"empty ones":      {[]int{0, 0, 0, 0}, 2, "2 2"},
		"more than there": {[]int{10, 10}, 5, "0 1 0 1 0"},
		"nothing":         {nil, 3, "0 0 0"},
		"mixed 7":         {mixed, 7, ""},
		"mixed 16":        {mixed, 16, ""},
		"very many":       {mixed, 1 << 40, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sized(t, tc.sizes...)
			whole := plan(t, capture.Options{}, dir)
			if tc.parts > 1<<20 {
				plan(t, capture.Options{Part: 1 << 39, Parts: tc.parts}, dir) // is no harm
				return
			}
			split := whole.Split(tc.parts)
			var all, inputs []string
			for i, s := range split {
				p := plan(t, capture.Options{Part: i + 1, Parts: tc.parts}, dir)
				mine := strings.Fields(sources(p))
				first, last := "", ""
				if len(mine) > 0 {
					first, last = mine[0], mine[len(mine)-1]
				}
				if want := (capture.Share{Inputs: p.Inputs(), Bytes: p.Bytes(), First: first, Last: last}); s != want {
					t.Errorf("part %d: Split says %+v, its plan has %+v", i+1, s, want)
				}
				if p.Digest() != whole.Digest() {
					t.Errorf("part %d: digest %s, want that of the whole, %s", i+1, p.Digest(), whole.Digest())
				}
				if most := (whole.Bytes()+int64(whole.Inputs()))/int64(tc.parts) + int64(slices.Max(append(tc.sizes, 0))) + 2; s.Bytes > most {
					t.Errorf("part %d has %d bytes, want at most %d", i+1, s.Bytes, most)
				}
				all = append(all, mine...)
				inputs = append(inputs, fmt.Sprint(s.Inputs))
			}
			if want := strings.Fields(sources(whole)); !slices.Equal(all, want) {
				t.Errorf("parts hold %q, want %q", all, want)
			}
			if got := strings.Join(inputs, " "); tc.want != "" && got != tc.want {
				t.Errorf("inputs of the parts: %s, want %s", got, tc.want)
			}
		})
	}
}

// The digest is of what decides who takes what, and of nothing else.
func TestPlanDigest(t *testing.T) {
	t.Parallel()
	digest := func(opt capture.Options, sizes ...int) string { return plan(t, opt, sized(t, sizes...)).Digest() }
	same := digest(capture.Options{}, 1, 2)
	if got := digest(capture.Options{Part: 2, Parts: 2, Workers: 7}, 1, 2); got != same || len(same) != 64 {
		t.Errorf("the same files elsewhere, another part: digest %s, want %s", got, same)
	}
	facts := func(f producer.Facts) capture.Options { return capture.Options{Facts: f} }
	seen := map[string]string{same: "as it is"}
	for name, got := range map[string]string{
		"another size": digest(capture.Options{}, 1, 3),
		"a file more":  digest(capture.Options{}, 1, 2, 0),
		"a file less":  digest(capture.Options{}, 1),
		"layers":       digest(facts(producer.Facts{Layers: format.Layers{2}}), 1, 2),
		"other layers": digest(facts(producer.Facts{Layers: format.Layers{3}}), 1, 2),
		"producer":     digest(facts(producer.Facts{Producer: "vllm"}), 1, 2),
		"final":        digest(facts(producer.Facts{Final: producer.FinalPre}), 1, 2),
		"dtype":        digest(facts(producer.Facts{DType: format.Float16}), 1, 2),
		"padding":      digest(facts(producer.Facts{TrimPadding: true}), 1, 2),
		"target":       digest(facts(producer.Facts{Target: format.Target{Layers: 5}}), 1, 2),
		"map":          digest(facts(producer.Facts{Map: []producer.Mapping{{Column: "final", Glob: "x"}}}), 1, 2),
		"follow":       capture.Options{}.FollowDigest(),
		"follow facts": facts(producer.Facts{TrimPadding: true}).FollowDigest(),
	} {
		if of := seen[got]; of != "" {
			t.Errorf("%s: the digest is that of %s", name, of)
		}
		seen[got] = name
	}
}

// Directories that fill are shared by name: no input changes its part when others come.
func TestFollowShares(t *testing.T) {
	t.Parallel()
	const parts = 3
	dir := t.TempDir()
	of := map[string]int{}
	for _, n := range []int{8, 16} {
		for i := range n {
			write(t, dir, fmt.Sprintf("data_%d.pt", i), []byte("no dump"))
		}
		held := 0
		for part := 1; part <= parts; part++ {
			s := newStore(dir)
			if _, err := s.follow(t.Context(), t, capture.Options{Part: part, Parts: parts}, capture.FollowOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, r := range s.rejected {
				held++
				if had := of[r.Path]; had != 0 && had != part {
					t.Errorf("%s moved from share %d to %d when files were added", r.Path, had, part)
				}
				of[r.Path] = part
			}
		}
		if held != n {
			t.Errorf("shares hold %d inputs, want %d", held, n)
		}
	}
}
