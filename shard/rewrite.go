package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// DefaultSmallShards is how many small shards may lie at the end of a dataset.
const DefaultSmallShards = 64

// Compact joins small shards at the end of the dataset, which frequent commits leave,
// when there are Options.SmallShards of them; else it does nothing. Small is less than
// half of Options.ShardBytes, and one call writes at most so much. Everything put so far
// is committed first. Rows keep their order, and the dataset is what it was or what it
// becomes at any instant; a reader that opened it before must open it again. An error
// that wraps ctx's, or is a *CorruptError in a shard, leaves the writer usable.
func (w *Writer) Compact(ctx context.Context) error {
	return w.rewrite(ctx, func(c *committer) error { return c.compact(ctx) })
}

// compact leaves out what is more than twice as long as all that follows: a row is so
// written anew only when its shard at least grows by half.
func (c *committer) compact(ctx context.Context) error {
	shards := c.manifest.Shards
	size := func(i int) int64 { return c.manifest.StateBytes(shards[i]) }
	from, small, after := len(shards), 0, int64(0)
	for i := len(shards) - 1; i >= 0 && size(i) < c.opt.ShardBytes/2; i-- {
		if small++; from == i+1 && size(i) <= 2*max(after, size(len(shards)-1)) {
			from = i
		}
		after += size(i)
	}
	if small < cmp.Or(c.opt.SmallShards, DefaultSmallShards) {
		return nil
	}
	for ; from < len(shards); from++ {
		if end, _ := c.group(from); end-from > 1 {
			return c.replace(ctx, from, end)
		}
	}
	return nil
}

// group is the end of the shards from the given one on that fit into one of full size,
// and the bytes of their files.
func (c *committer) group(from int) (end int, bytes int64) {
	shards := c.manifest.Shards
	size := int64(0)
	for end = from; end < len(shards); end++ {
		if size += c.manifest.StateBytes(shards[end]); end > from && size > c.opt.ShardBytes {
			break
		}
		bytes += shards[end].Bytes
	}
	return end, bytes
}

// Recompress makes everything put so far durable, as Commit does, and then all shards
// what Options.Compress says, compressed or plain; small ones it joins as Compact does.
// One full shard is written and put in place at a time, so that little room is needed,
// and what was done when ctx ended stays done. progress, if not nil, gets the bytes of
// the shards that were looked at. What holds of readers and errors of Compact holds here.
func (w *Writer) Recompress(ctx context.Context, progress func(n int64)) error {
	return w.rewrite(ctx, func(c *committer) error { return c.regroup(ctx, 0, progress) })
}

// rewrite commits, and has the committer do something with the shards that are there.
func (w *Writer) rewrite(ctx context.Context, do func(*committer) error) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.ask(ctx, task{rewrite: func(c *committer) error {
		c.spare = <-w.free // it is there, and empty: nothing is put meanwhile
		defer func() { c.spare.reset(); w.free <- c.spare }()
		before := c.manifest
		err := do(c)
		if c.manifest != before {
			w.seen = nil // its shards went; the caller waits, so this is its turn too
		}
		return err
	}})
}

// unchanged is an error of a rewriting that left the dataset as it was.
type unchanged struct{ error }

func (u unchanged) Unwrap() error { return u.error }

// StateBytes is how many bytes of states a shard holds, however it stores them.
func (m *Manifest) StateBytes(s Info) int64 {
	perToken := int64(0)
	for _, st := range m.States {
		perToken += int64(m.HiddenSize * st.DType.Size())
	}
	return s.Tokens * perToken
}

// regroup goes through the shards from the given one on, makes one of as many as fit into
// a shard of full size, and writes those anew that are not encoded as shards are now.
// What it does follows from the manifest alone and leaves nothing to do, so a run that
// was killed is completed by another one.
func (c *committer) regroup(ctx context.Context, from int, progress func(n int64)) error {
	encoding := ""
	if c.pack != nil {
		encoding = EncodingSplit
	}
	for i := from; i < len(c.manifest.Shards); i++ {
		end, bytes := c.group(i)
		if end-i > 1 || c.manifest.Shards[i].Encoding != encoding {
			if err := c.replace(ctx, i, end); err != nil {
				return err
			}
		}
		if progress != nil {
			progress(bytes)
		}
	}
	return nil
}

// replace puts one shard in the place of those from i up to end: the new one first,
// then the manifest, and then the old ones are removed.
func (c *committer) replace(ctx context.Context, i, end int) error {
	info, err := c.join(ctx, i, end)
	if err != nil {
		return unchanged{fmt.Errorf("rewrite shards of %s: %w", c.place, err)}
	}
	m, old := *c.manifest, c.manifest.Shards
	m.setShards(append(append(append([]Info{}, old[:i]...), info), old[end:]...))
	if err := c.publish(&m); err != nil {
		return err
	}
	return removeUnlisted(c.opt.fs, c.dir, &m)
}

// join writes the rows of the shards from i up to end, each checked against its digest,
// into a new one.
func (c *committer) join(ctx context.Context, i, end int) (info Info, err error) {
	ds := &Dataset{place: c.place, manifest: c.manifest}
	first := c.manifest.Shards[i]
	out, err := createShard(c.opt.fs, filepath.Join(c.dir, shardsDir), shardName(shardNumber(first.Name)), c.manifest.Layout(), c.pack)
	if err != nil {
		return Info{}, err
	}
	out.layout, out.rewritten = c.manifest.Layout(), true
	c.spare.reset() // of a joining that failed
	cp := &copier{out: out, limit: c.opt.BatchBytes, gathered: c.spare, single: newBatch(0)}
	var m Memory
	for ; i < end && err == nil; i++ {
		ds.shardSamples(ctx, i, &m, func(s *format.Sample, serr error) bool {
			if err = serr; err == nil {
				err = mapped.Guard(func() error { return cp.put(s) })
			}
			return err == nil
		})
	}
	if err == nil {
		err = cp.flush()
	}
	if err != nil {
		return Info{}, errors.Join(err, out.discard())
	}
	return out.finish(c.manifest.States)
}

// copier adds samples to a shard, in the batches in which a writer would.
type copier struct {
	out              *openShard
	limit            int64 // bytes of states of a batch
	gathered, single *batch
}

func (c *copier) put(s *format.Sample) error {
	size := s.Bytes()
	alone := size >= c.limit/2
	if alone || c.gathered.stateBytes+size > c.limit {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if !alone {
		return c.gathered.add(s)
	}
	c.single.reset()
	c.single.layout = s.Layout()
	c.single.addSmall(s, [digestSize]byte{}) // the digest follows when the states are read
	return c.out.stream(c.single, s)
}

func (c *copier) flush() error {
	if c.gathered.rowsInBatch == 0 {
		return nil
	}
	defer c.gathered.reset()
	return c.out.write(c.gathered)
}

// publish makes a manifest the dataset's.
func (c *committer) publish(m *Manifest) error {
	if c.box != nil {
		c.manifest, c.fresh = m, false
		return c.box.publish(m)
	}
	data, err := m.encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", manifestName, err)
	}
	if err := atomicfile.Write(c.opt.fs, filepath.Join(c.dir, manifestName), data); err != nil {
		return err
	}
	c.manifest, c.fresh = m, false
	return nil
}
