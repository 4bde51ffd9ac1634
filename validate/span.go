package validate

import (
	"cmp"
	"math"
	"sync"

	"hsx/shard"
)

// spanBytes is how much of states a worker takes at a time: much more than what the scans
// of a span keep, since that is made and added for each.
const spanBytes = 96 << 20

// maxSpans bounds what a manifest can claim before its shards are looked at.
const maxSpans = 1 << 12

// span is the part of a job that one worker scans.
type span struct {
	from, to int // of the job's rows
	last     bool
}

// spans cuts a job at places that its data decides alone, and not the number of workers.
func (e *engine) spans(j shardJob) []span {
	info := e.ds.Manifest().Shards[j.shard]
	rows := int(info.Rows)
	if j.rows != nil {
		rows = len(j.rows)
	}
	bytes := float64(e.ds.Manifest().StateBytes(info)) * float64(rows) / float64(max(1, info.Rows))
	n := max(1, min(rows, int(math.Ceil(min(maxSpans, bytes/float64(cmp.Or(e.spanBytes, spanBytes)))))))
	at := func(i int) int { return rows/n*i + rows%n*i/n }
	out := make([]span, n)
	for i := range out {
		out[i] = span{from: at(i), to: at(i + 1), last: i == n-1}
	}
	return out
}

// spanResult is what one span gave, or all spans of a shard so far.
type spanResult struct {
	span
	scans []scan
	out   *Collector
	fault error // damage that leaves nothing of the shard
	err   error
}

func (e *engine) fresh() *spanResult {
	return &spanResult{scans: e.make(), out: NewCollector(e.out.keep, e.out.enabled)}
}

// add takes over what a later span of the same shard gave.
func (r *spanResult) add(later *spanResult) {
	r.fault = cmp.Or(r.fault, later.fault)
	for i, s := range r.scans {
		s.add(later.scans[i])
	}
	r.out.Merge(later.out)
}

// sharedShard is a shard that is opened by the first who reads it.
type sharedShard struct {
	open  func() (*shard.Shard, error)
	ahead []int // the rows that will be read

	once  sync.Once
	shard *shard.Shard
	err   error
}

func (s *sharedShard) get() (*shard.Shard, error) {
	s.once.Do(func() {
		if s.shard, s.err = s.open(); s.err == nil {
			s.shard.Ahead(s.ahead)
		}
	})
	return s.shard, s.err
}

// close is called when nobody reads any more.
func (s *sharedShard) close() {
	if s.shard != nil {
		_ = s.shard.Close() // opened for reading: nothing can be lost
	}
}
