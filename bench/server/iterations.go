package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// iterationSource is the Source of counts out of TensorRT-LLM's list.
const iterationSource = string(TRTLLM) + " iteration statistics"

// iteration is what is read of one iteration of TensorRT-LLM's list.
type iteration struct {
	Iter      int64   `json:"iter"`
	DPRank    int     `json:"attentionDpRank"`
	Active    float64 `json:"numActiveRequests"`
	Queued    float64 `json:"numQueuedRequests"`
	Completed float64 `json:"numCompletedRequests"`
	Spec      *struct {
		Drafted  float64 `json:"numDraftTokens"`
		Accepted float64 `json:"numAcceptedTokens"`
		Steps    float64 `json:"numRequestsWithDraftTokens"`
	} `json:"specDecodingStats"`
}

// iterationStats are sums over all iterations that a server has listed so far. It lists
// them once, so that the sums are kept here, from the first read on.
type iterationStats struct {
	began                              time.Time
	last                               int64
	spec                               bool
	steps, accepted, drafted, finished float64
}

// iterations adds a list to what was read before of the same URL. The Source of the
// snapshot is empty when no iteration was ever listed.
func (c *Client) iterations(at string, body []byte) (Snapshot, error) {
	var list []iteration
	if err := json.Unmarshal(body, &list); err != nil {
		return Snapshot{}, fmt.Errorf("counters: %s: iteration statistics: %w", redact(at), err)
	}
	// With attention data parallelism the other ranks repeat what rank 0 counts.
	list = slices.DeleteFunc(list, func(it iteration) bool { return it.DPRank > 0 })
	sums := c.meter.stats[at]
	if sums == nil && len(list) == 0 {
		return Snapshot{}, nil
	}
	var s Snapshot
	if sums != nil { // what the first list ends with may be long past
		s.Load.Known = true
	}
	if n := len(list); sums == nil || n > 0 && list[n-1].Iter < sums.last { // a first read, or a new process
		if sums == nil {
			sums = &iterationStats{}
			c.meter.remember(at, sums)
		}
		sums.began, sums.last = time.Now(), list[0].Iter-1
	}
	lost := int64(0)
	for _, it := range list {
		if it.Iter <= sums.last { // listed once more
			continue
		}
		lost += it.Iter - sums.last - 1
		sums.last = it.Iter
		if !finite(it.Completed) || !finite(it.Active) || !finite(it.Queued) {
			continue
		}
		sums.finished += it.Completed
		s.Load.Running, s.Load.Waiting = it.Active, it.Queued
		if d := it.Spec; d != nil && d.Drafted > 0 && finite(d.Drafted) && finite(d.Steps) && finite(d.Accepted) {
			sums.spec = true
			sums.steps += it.Spec.Steps
			sums.accepted += it.Spec.Accepted
			sums.drafted += it.Spec.Drafted
		}
	}
	if lost > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf("the server dropped %d iterations from its list: its counts are of the rest", lost))
	}
	finished, began := sums.finished, float64(sums.began.UnixMicro())/1e6
	s.Finished, s.Started = &finished, &began
	if sums.spec {
		steps, accepted, drafted := sums.steps, sums.accepted, sums.drafted
		s.Steps, s.Accepted, s.Drafted = &steps, &accepted, &drafted
	}
	s.Ranks, s.Source = 1, iterationSource
	return s, nil
}
