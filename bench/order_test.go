package bench

import (
	"fmt"
	"strings"
	"testing"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	one, eight := Level{Concurrency: 1}, Level{Concurrency: 8}
	tests := map[string]struct {
		arms, runs, warmUps int
		levels              []Level
		done                map[Key]bool
		want                string
	}{
		"two arms alternate":      {2, 4, 0, []Level{one}, nil, "A1 B1 B2 A2 A3 B3 B4 A4"},
		"warm-up first":           {2, 2, 2, []Level{one}, nil, "Aw1 Bw1 Bw2 Aw2 A1 B1 B2 A2"},
		"one arm":                 {1, 2, 1, []Level{one}, nil, "Aw1 A1 A2"},
		"three arms":              {3, 2, 0, []Level{one}, nil, "A1 B1 C1 C2 B2 A2"},
		"each level is warmed up": {1, 1, 1, []Level{one, eight}, nil, "Aw1 A1 Aw1@8 A1@8"},
		"no arm":                  {0, 2, 2, []Level{one}, nil, ""},
		"resumed": {2, 2, 1, []Level{one, eight}, map[Key]bool{
			{Arm: "A", Level: one, Run: 1}: true, {Arm: "B", Level: one, Run: 1}: true, {Arm: "B", Level: one, Run: 2}: true,
		}, "Aw1 A2 Aw1@8 Bw1@8 A1@8 B1@8 B2@8 A2@8"},
		"resumed when all is done": {1, 1, 2, []Level{one}, map[Key]bool{{Arm: "A", Level: one, Run: 1}: true}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arms []Arm
			for i := range tt.arms {
				arms = append(arms, Arm{Name: string(rune('A' + i))})
			}
			var got []string
			for _, k := range schedule(arms, &Plan{Levels: tt.levels, Runs: tt.runs, WarmUpRuns: tt.warmUps}, tt.done) {
				s := k.Arm
				if k.WarmUp {
					s += "w"
				}
				s += fmt.Sprint(k.Run)
				if k.Level != one {
					s += fmt.Sprintf("@%d", k.Level.Concurrency)
				}
				got = append(got, s)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("schedule: got %q, want %q", got, tt.want)
			}
		})
	}
}
