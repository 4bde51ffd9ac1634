package prompts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/prompts"
)

func categories() []string {
	return []string{"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
}

func TestBuiltin(t *testing.T) {
	t.Parallel()
	ps := prompts.Builtin()
	if got, want := len(ps), 80; got != want {
		t.Fatalf("Builtin(): got %d prompts, want %d", got, want)
	}
	second, long, short := 0, 0, 0
	for round := range 10 {
		seconds := 0
		for i, want := range categories() {
			p := ps[round*8+i]
			if p.Category != want || len(p.Before) > 0 {
				t.Errorf("prompt %s: got category %q and %d messages before, want %q and none", p.ID, p.Category, len(p.Before), want)
			}
			switch len(p.Turns) {
			case 1:
			case 2:
				seconds++
			default:
				t.Errorf("prompt %s: got %d turns, want one or two", p.ID, len(p.Turns))
			}
			words := len(strings.Fields(p.Turns[0]))
			if words < 8 || words > 600 {
				t.Errorf("prompt %s: got %d words, want 8 to 600", p.ID, words)
			}
			if words > 300 {
				long++
			}
			if words <= 10 {
				short++
			}
		}
		if seconds < 2 || seconds > 3 {
			t.Errorf("round %d of the categories: got %d second turns, want 2 or 3", round, seconds)
		}
		second += seconds
	}
	if second != 27 || long < 5 || short < 3 {
		t.Errorf("Builtin(): got %d second turns, %d long and %d short prompts, want 27, at least 5 and at least 3", second, long, short)
	}
	for _, want := range []string{"general relativity", "B-tree in Rust", "economics of artificial intelligence"} {
		if !strings.Contains(opening(ps[:24], 1<<20), want) {
			t.Errorf("Builtin(): got none on %s in the first 24, want one", want)
		}
	}
	// Results of two versions compare only where the set is the same: a new digest is
	// a line in the changelog.
	if got, want := prompts.Digest(ps), "0a697dc4d5bdc082"; got != want {
		t.Errorf("Digest(Builtin()): got %s, want %s", got, want)
	}
}

func TestWarmUp(t *testing.T) {
	t.Parallel()
	ps := prompts.WarmUp()
	if got, want := len(ps), 16; got != want {
		t.Fatalf("WarmUp(): got %d prompts, want %d", got, want)
	}
	for i, p := range ps {
		if want := categories()[i%8]; p.Category != want || len(p.Turns) != 1 {
			t.Errorf("prompt %s: got category %q and %d turns, want %q and one", p.ID, p.Category, len(p.Turns), want)
		}
	}
}

// A server that caches prefixes would answer the second of two prompts faster if they
// began alike.
func TestOpeningsDiffer(t *testing.T) {
	t.Parallel()
	all := append(prompts.Builtin(), prompts.WarmUp()...)
	ids, openings := map[string]bool{}, map[string]string{}
	for i, p := range all {
		if ids[p.ID] {
			t.Errorf("id %q: got it twice, want it once", p.ID)
		}
		ids[p.ID] = true
		open := opening(all[i:i+1], 8)
		if other, dup := openings[open]; dup {
			t.Errorf("prompts %s and %s: both begin %q, want different openings", other, p.ID, open)
		}
		openings[open] = p.ID
	}
}

// opening is the first n words of the first turns of ps.
func opening(ps []prompts.Prompt, n int) string {
	var words []string
	for _, p := range ps {
		words = append(words, strings.Fields(p.Turns[0])...)
	}
	return strings.Join(words[:min(n, len(words))], " ")
}

func TestSelect(t *testing.T) {
	t.Parallel()
	ps := prompts.Builtin()
	tests := map[string]struct {
		n    int
		seed uint64
		want int
	}{
		"none asked for":  {0, 7, 80},
		"negative":        {-1, 7, 80},
		"more than all":   {81, 7, 80},
		"one":             {1, 7, 1},
		"some":            {20, 7, 20},
		"all but one":     {79, 7, 79},
		"seed 0":          {20, 0, 20},
		"largest of seed": {20, 1<<64 - 1, 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := prompts.Select(ps, tt.n, tt.seed)
			if len(got) != tt.want {
				t.Fatalf("Select(80, %d, %d): got %d prompts, want %d", tt.n, tt.seed, len(got), tt.want)
			}
			if diff := cmp.Diff(prompts.Select(ps, tt.n, tt.seed), got); diff != "" {
				t.Errorf("Select(80, %d, %d) again (-again +first):\n%s", tt.n, tt.seed, diff)
			}
			if tt.seed == 0 && prompts.Digest(got) != prompts.Digest(ps[:tt.want]) {
				t.Errorf("Select(80, %d, 0): got others than the first %d", tt.n, tt.want)
			}
			rest := ps // in file order and none twice: each is found behind the one before
			for _, p := range got {
				for len(rest) > 0 && rest[0].ID != p.ID {
					rest = rest[1:]
				}
				if len(rest) == 0 {
					t.Fatalf("Select(80, %d, %d): prompt %s comes twice or out of order", tt.n, tt.seed, p.ID)
				}
				rest = rest[1:]
			}
		})
	}
	if a, b := prompts.Digest(prompts.Select(ps, 20, 1)), prompts.Digest(prompts.Select(ps, 20, 2)); a == b {
		t.Errorf("Select(80, 20, …): got the same prompts of seeds 1 and 2, want others")
	}
}

// Over many seeds each prompt is picked as often as another.
func TestSelectIsFair(t *testing.T) {
	t.Parallel()
	ps := prompts.Builtin()
	picked := map[string]int{}
	const seeds = 4000
	for seed := range uint64(seeds) {
		for _, p := range prompts.Select(ps, 20, seed+1) {
			picked[p.ID]++
		}
	}
	for _, p := range ps { // expected 1000, standard deviation 27
		if n := picked[p.ID]; n < 860 || n > 1140 {
			t.Errorf("prompt %s: picked %d times in %d selections of a quarter, want about 1000", p.ID, n, seeds)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	base := func() []prompts.Prompt {
		return []prompts.Prompt{
			{ID: "a", Category: "math", Turns: []string{"one", "two"}},
			{ID: "b", Before: []prompts.Message{{Role: "system", Content: "be brief"}}, Turns: []string{"three"}},
		}
	}
	const golden = "971fc0959421ccc6"
	if got := prompts.Digest(base()); got != golden {
		t.Errorf("Digest: got %s, want %s", got, golden)
	}
	tests := map[string]struct {
		change func(ps []prompts.Prompt)
		same   bool
	}{
		"category":         {func(ps []prompts.Prompt) { ps[0].Category = "stem" }, true},
		"empty before":     {func(ps []prompts.Prompt) { ps[0].Before = []prompts.Message{} }, true},
		"order":            {func(ps []prompts.Prompt) { ps[0], ps[1] = ps[1], ps[0] }, false},
		"order of turns":   {func(ps []prompts.Prompt) { ps[0].Turns = []string{"two", "one"} }, false},
		"id":               {func(ps []prompts.Prompt) { ps[0].ID = "c" }, false},
		"turn":             {func(ps []prompts.Prompt) { ps[1].Turns[0] = "Three" }, false},
		"turns joined":     {func(ps []prompts.Prompt) { ps[0].Turns = []string{"onetwo"} }, false},
		"turns cut anew":   {func(ps []prompts.Prompt) { ps[0].Turns = []string{"on", "etwo"} }, false},
		"role":             {func(ps []prompts.Prompt) { ps[1].Before[0].Role = "user" }, false},
		"content":          {func(ps []prompts.Prompt) { ps[1].Before[0].Content = "" }, false},
		"before to a turn": {func(ps []prompts.Prompt) { ps[1].Before, ps[1].Turns = nil, []string{"system", "be brief", "three"} }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ps := base()
			tt.change(ps)
			if got := prompts.Digest(ps); (got == golden) != tt.same {
				t.Errorf("Digest after the change: got %s, of the original %s, want equal: %v", got, golden, tt.same)
			}
		})
	}
}
