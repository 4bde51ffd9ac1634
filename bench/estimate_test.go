package bench

import (
	"fmt"
	"strings"
	"testing"

	"hsx/bench/prompts"
	"hsx/bench/server"
)

func estimatePrompts(n, second int) []prompts.Prompt {
	ps := make([]prompts.Prompt, n)
	for i := range ps {
		ps[i] = prompts.Prompt{ID: fmt.Sprint(i), Turns: []string{"say something"}}
		if i < second {
			ps[i].Turns = append(ps[i].Turns, "and more")
		}
	}
	return ps
}

func TestEcho(t *testing.T) {
	t.Parallel()
	warm := estimatePrompts(16, 0)
	tests := map[string]struct {
		plan Plan
		want string
	}{
		"one turn each": {
			Plan{Prompts: estimatePrompts(80, 0), WarmUp: warm, Arms: make([]Arm, 2), Levels: []Level{{Concurrency: 1}}, Runs: 5, WarmUpRuns: 2},
			"80 prompts × 5 runs × 2 arms = 800 measured requests (+64 warm-up)",
		},
		"turns and levels": {
			Plan{Prompts: estimatePrompts(80, 27), WarmUp: warm, Arms: make([]Arm, 2), Levels: []Level{{Concurrency: 1}, {Concurrency: 32}, {Rate: 2}}, Runs: 5, WarmUpRuns: 1},
			"107 requests of 80 prompts × 5 runs × 2 arms × 3 levels = 3210 measured requests (+128 warm-up)",
		},
		"one of each": {
			Plan{Prompts: estimatePrompts(1, 0), Arms: make([]Arm, 1), Levels: []Level{{Concurrency: 1}}, Runs: 1},
			"1 prompt × 1 run × 1 arm = 1 measured requests",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.plan.Echo(); got != tt.want {
				t.Errorf("Echo: got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAnswerLimit(t *testing.T) {
	t.Parallel()
	long := prompts.Prompt{ID: "long", Turns: []string{strings.Repeat("word ", 300)}} // 500 tokens and 16
	tests := map[string]struct {
		prompts []prompts.Prompt
		infos   []*server.Info
		want    int
	}{
		"nothing known":              {estimatePrompts(1, 0), []*server.Info{{}}, 2048},
		"one arm thinks":             {estimatePrompts(1, 0), []*server.Info{{}, {Thinks: true}}, 8192},
		"context is ample":           {estimatePrompts(1, 0), []*server.Info{{MaxContext: 131072, Thinks: true}}, 8192},
		"prompt and answer fit":      {[]prompts.Prompt{long}, []*server.Info{{MaxContext: 2000}}, 2000 - 516},
		"smallest context counts":    {[]prompts.Prompt{long}, []*server.Info{{MaxContext: 40000}, {MaxContext: 2000}}, 2000 - 516},
		"two answers in a context":   {estimatePrompts(1, 1), []*server.Info{{MaxContext: 1000}}, (1000 - 32 - 4 - 2) / 2},
		"prompt fills the context":   {[]prompts.Prompt{long}, []*server.Info{{MaxContext: 512}}, 128},
		"context of a broken report": {[]prompts.Prompt{long}, []*server.Info{{MaxContext: -7}}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := answerLimit(tt.prompts, tt.infos); got != tt.want {
				t.Errorf("answerLimit: got %d, want %d", got, tt.want)
			}
		})
	}
}
