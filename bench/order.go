package bench

// schedule is the passes over arms in the order in which they are measured: for each
// level the warm-up of every arm, then the runs. What is in done is left out; an arm
// that still has runs at a level is warmed up for it, whatever was done.
func schedule(arms []Arm, p *Plan, done map[Key]bool) []Key {
	var keys []Key
	for _, level := range p.Levels {
		var measured []Key
		left := map[string]bool{}
		for run := 1; run <= p.Runs; run++ {
			for _, i := range armOrder(len(arms), run) {
				key := Key{Arm: arms[i].Name, Level: level, Run: run}
				if !done[key] {
					measured = append(measured, key)
					left[key.Arm] = true
				}
			}
		}
		for run := 1; run <= p.WarmUpRuns; run++ {
			for _, i := range armOrder(len(arms), run) {
				if left[arms[i].Name] {
					keys = append(keys, Key{Arm: arms[i].Name, Level: level, Run: run, WarmUp: true})
				}
			}
		}
		keys = append(keys, measured...)
	}
	return keys
}

// armOrder is the order of n arms in a run, counted from 1: A B, then B A, then A B.
// So no arm is always the first, and a drift of the machine meets all alike.
func armOrder(n, run int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if run%2 == 0 {
			order[i] = n - 1 - i
		}
	}
	return order
}
