package server

import "slices"

// sources are the places from which accept lengths can come, best first. A server that
// is known not to speculate has none.
func sources(info *Info, after Snapshot, change Change) []Source {
	list := []Source{}
	if info.Speculation.Known && !info.Speculation.On {
		return list
	}
	offer := func(name string, trust Trust, why string) { list = append(list, Source{name, trust, why}) }
	if a := info.Probe.Accept; a != nil {
		if a.Approx {
			offer(a.Source, Approx, "per request, steps or drafts derived")
		} else {
			offer(a.Source, Exact, "per request, as the server counted")
		}
	}
	switch {
	case after.Steps != nil && after.Accepted != nil:
		offer(after.Source, Idle, "differences of counters: exact while nobody else uses the server")
	case change.Accept != nil:
		offer(change.Accept.Source, Approx, "differences of counters, derived; only while nobody else uses the server")
	case after.Drafted != nil && after.Accepted != nil && info.Speculation.Steps > 0:
		offer(after.Source, Approx, "differences of counters, steps derived from the draft length; only while nobody else uses the server")
	}
	if info.Engine == SGLang && (after.Lifetime != nil || after.Steps == nil) {
		offer("/server_info", Approx, "average since /flush_cache, of all traffic; its last 40 batches are missing, needs 200 steps or more")
	}
	if info.Probe.Continuous {
		offer("tokens per chunk", Proxy, "continuous usage: a chunk may hold more than one step")
	}
	if after.Window != nil {
		offer(after.Source+", gauge", Low, "average of the last log window only")
	}
	if after.LogSteps != nil {
		offer("server log", Low, "averages of windows, of all traffic")
	}
	slices.SortStableFunc(list, func(a, b Source) int { return a.Trust.rank() - b.Trust.rank() })
	return list
}

func (t Trust) rank() int {
	return slices.Index([]Trust{Exact, Idle, Approx, Proxy, Low}, t)
}
