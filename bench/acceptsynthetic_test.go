package bench_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"hsx/bench"
	"hsx/bench/server"
)

// synthetic is what Analyse says of acceptance where each request's accepted drafts per
// step come from steps.
func synthetic(sp server.Speculation, drafted int, steps func(r *bench.Request, i int) int) string {
	arm := specArm([]float64{100, 101, 99}, 0)
	arm.info.Speculation = sp
	arm.request = func(r *bench.Request) {
		var prompt int
		if _, err := fmt.Sscanf(r.Prompt, "p%d", &prompt); err != nil {
			panic(err)
		}
		a := &server.Accept{Steps: float64(40 + 13*prompt), Source: "x"}
		a.Drafted = float64(drafted) * a.Steps
		for i := range int(a.Steps) {
			a.Accepted += float64(steps(r, i))
		}
		r.Tokens, r.Accept = int(1+a.Steps+a.Accepted), a
	}
	return bench.Analyse(logOf(concurrency(1), arm), bench.Judgement{}).Validity[0].Synthetic
}

func TestSyntheticAcceptance(t *testing.T) {
	t.Parallel()
	fixed := func(_ *bench.Request, i int) int { return int(float64(i+1)*1.4) - int(float64(i)*1.4) }
	says := chain(3)
	says.Synthetic = "SGLANG_SIMULATE_ACC_LEN=2.4"
	tests := map[string]struct {
		sp      server.Speculation
		drafted int
		steps   func(*bench.Request, int) int
		want    string
	}{
		"the server says so":      {says, 3, func(*bench.Request, int) int { return 3 }, "the server fakes acceptance: SGLANG_SIMULATE_ACC_LEN=2.4"},
		"one pattern":             {chain(3), 3, fixed, "the accept length is 2.40 on each of 20 prompts"},
		"one pattern, not known":  {server.Speculation{}, 0, fixed, "the accept length is 2.40 on each of 20 prompts"},
		"always 2 of 3":           {chain(3), 3, func(*bench.Request, int) int { return 2 }, "the accept length is 3.00 on each of 20 prompts"},
		"everything is accepted":  {chain(3), 3, func(*bench.Request, int) int { return 3 }, ""},
		"everything, not counted": {chain(3), 0, func(*bench.Request, int) int { return 3 }, ""},
		"nothing is accepted":     {chain(3), 3, func(*bench.Request, int) int { return 0 }, ""},
		"prompts differ": {chain(3), 3, func(r *bench.Request, i int) int {
			return fixed(r, i) + int(r.Prompt[2]-'0')%2
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := synthetic(tt.sp, tt.drafted, tt.steps); tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSyntheticAcceptanceOfChance holds that a draft that is as good on every text as on
// any other, which no real draft is, is not taken for a fake.
func TestSyntheticAcceptanceOfChance(t *testing.T) {
	t.Parallel()
	for steps, chance := range map[int]float64{1: 0.93, 3: 0.6, 7: 0.8} {
		for seed := range uint64(25) {
			rng := rand.New(rand.NewPCG(seed, uint64(steps)))
			got := synthetic(chain(steps), steps, func(*bench.Request, int) int {
				n := 0
				for n < steps && rng.Float64() < chance {
					n++
				}
				return n
			})
			if got != "" {
				t.Errorf("%d steps of %g, seed %d: got %q, want nothing", steps, chance, seed, got)
			}
		}
	}
}
